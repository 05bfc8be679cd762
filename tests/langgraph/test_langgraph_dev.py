"""`langgraph dev`, the real one, stopped in four ways: with holdfast nothing is lost; as it comes, it is."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dev_server import HOLDFAST, OWN_SAVER, DevServer, contents, wait_until
from stores import Store

from holdfast import SyncClient
from holdfast.format import frame
from holdfast.format.rows import head

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("langgraph_runtime_inmem") is None, reason="langgraph-cli[inmem] is not installed"
    ),
]
HOLDFAST_STORE = {"path": "holdfast.langgraph.dev_store"}
QUESTION = {"question": "go on?"}


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Callable[..., DevServer]]:
    """Servers, each in a directory of its own; stopped at the end."""
    running: list[DevServer] = []

    def start(checkpointer: dict[str, Any] | None, **options: Any) -> DevServer:
        server = DevServer(tmp_path / f"project{len(running)}", checkpointer=checkpointer, **options)
        running.append(server)
        server.start()
        return server

    yield start
    for server in running:
        server.__exit__()


def store_of(server: DevServer) -> Path:
    return server.directory / ".holdfast" / "store.db"


def holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments], capture_output=True, text=True, timeout=240, check=False,
        env={name: value for name, value in os.environ.items() if name != "HOLDFAST_URL"},
    )  # fmt: skip


def rows_of(server: DevServer) -> str:
    """What the store has of the server's lists."""
    with SyncClient.sqlite(store_of(server)) as client:
        backend, codec = client._ctx.backend.backend, client._ctx.codec
        found = backend.scan("lgserver")  # docs/format.md
    return repr([codec.decode(frame.content(head.content(key, row))) for key, row in found])


def interrupted_thread(server: DevServer, text: str = "hello", **metadata: Any) -> str:
    thread = server.new_thread(**metadata)
    assert server.run(thread, text)["__interrupt__"][0]["value"] == QUESTION
    return thread


def begin_to_wait(server: DevServer, thread: str) -> str:
    """A run that does not end, once it has saved what it was given."""
    given = {"messages": [{"role": "user", "content": "wait"}]}
    run = server.must("POST", f"/threads/{thread}/runs", {"assistant_id": "agent", "input": given})

    def waits() -> bool:
        status, state = server.ask("GET", f"/threads/{thread}/state")  # 404 until the run has said of which graph it is
        return status == 200 and contents(state["values"] or {})[-1:] == ["wait"]

    wait_until(waits, "the run has saved what it was given", server.log)
    return run["run_id"]


def assert_it_stands_where_it_stood(server: DevServer, thread: str, text: str = "hello") -> None:
    state = server.state(thread)
    assert contents(state["values"]) == [text, "thought"]
    assert state["next"] == ["ask"]
    assert [waiting["value"] for waiting in state["interrupts"]] == [QUESTION]


def assert_it_goes_on(
    server: DevServer, thread: str, edition: str = "first", text: str = "hello", own: str = "[]"
) -> None:
    assert_it_stands_where_it_stood(server, thread, text)
    status, values = server.resume(thread, "yes")
    assert status == 200
    assert contents(values) == [text, "thought", f"yes, by the {edition} edition; {own}"]
    assert server.state(thread)["next"] == []
    # A call that blocks the event loop fails under this server, and says so here.
    assert (server.said("BlockingError"), server.said("Traceback")) == (0, 0)


def assert_the_chain_is_whole(path: Path, saves: int) -> None:
    with SyncClient.sqlite(path) as client:
        assert client.verify().ok
        [session] = client.sessions()
        assert session.saves == saves
        chain, entry = [], session.head
        while entry is not None:
            chain.append(entry.checkpoint_id)
            entry = client.get(entry.parent_id) if entry.parent_id else None
        assert len(chain) == saves


def test_sigterm(dev) -> None:
    server = dev(HOLDFAST)
    thread = interrupted_thread(server)
    server.stop(signal.SIGTERM)
    server.start()
    assert_it_goes_on(server, thread)
    server.stop(signal.SIGTERM)
    assert_the_chain_is_whole(store_of(server), 4)


def test_sigkill_at_once(dev) -> None:
    """Threads come back by themselves, with their metadata; so do assistants and crons."""
    server = dev(HOLDFAST, store=HOLDFAST_STORE)
    empty = server.new_thread(owner="bob")
    assistant = server.must(
        "POST",
        "/assistants",
        {"graph_id": "agent", "name": "mine", "metadata": {"owner": "ada"}, "config": {"tags": ["x"]}},
    )
    cron = server.must(
        "POST", "/runs/crons", {"assistant_id": "agent", "schedule": "0 0 1 1 *", "input": {"messages": []}}
    )
    server.must("PUT", "/store/items", {"namespace": ["users", "ada"], "key": "name", "value": {"is": "Ada"}})
    thread = interrupted_thread(server, owner="ada")
    server.must("PATCH", f"/threads/{empty}", {"metadata": {"seen": True}})
    wait_until(lambda: "seen" in rows_of(server), "the list of threads is copied", server.log)
    server.stop(signal.SIGKILL)
    server.start()
    row = server.must("GET", f"/threads/{thread}")
    assert (row["metadata"]["owner"], row["metadata"]["graph_id"], row["status"]) == ("ada", "agent", "interrupted")
    assert server.must("GET", f"/threads/{empty}")["metadata"] == {"owner": "bob", "seen": True}
    back = server.must("GET", f"/assistants/{assistant['assistant_id']}")
    assert (back["name"], back["metadata"], back["config"]["tags"]) == ("mine", {"owner": "ada"}, ["x"])
    assert [one["version"] for one in server.must("POST", f"/assistants/{back['assistant_id']}/versions", {})] == [1]
    assert [one["cron_id"] for one in server.must("POST", "/runs/crons/search", {})] == [cron["cron_id"]]
    kept = server.must("GET", "/store/items?namespace=users.ada&key=name")
    assert kept["value"] == {"is": "Ada"}
    [run] = server.must("GET", f"/threads/{thread}/runs")
    assert run["status"] in ("interrupted", "success")
    assert server.said("holdfast keeps threads, assistants, crons and runs") == 2  # once at each start
    assert server.said("holdfast put back what this server had lost") == 1
    assert len(server.must("POST", "/assistants/search", {"limit": 100})) == 2  # the server's own is there once
    assert_it_goes_on(server, thread)
    server.must("DELETE", f"/threads/{empty}")
    wait_until(lambda: "seen" not in rows_of(server), "the row is removed", server.log)
    server.stop(signal.SIGKILL)
    server.start()
    assert server.ask("GET", f"/threads/{empty}")[0] == 404
    assert server.must("GET", f"/threads/{thread}")["metadata"]["owner"] == "ada"
    server.stop(signal.SIGKILL)
    assert_the_chain_is_whole(store_of(server), 4)


def test_threads_of_a_saver_that_knows_no_server_are_put_back_by_hand(dev) -> None:
    server = dev(OWN_SAVER)
    thread = interrupted_thread(server)
    server.stop(signal.SIGKILL)
    server.start()
    assert server.ask("GET", f"/threads/{thread}/state")[0] == 404
    listed = holdfast("langgraph", "threads", "--store", str(store_of(server)), "--restore", server.url, "--json")
    assert listed.returncode == 0, listed.stderr
    [restored] = json.loads(listed.stdout)["threads"]
    assert (restored["thread_id"], restored["graph_id"], restored["server"]) == (thread, "agent", "restored")
    assert_it_stands_where_it_stood(server, thread)
    again = holdfast("langgraph", "threads", "--store", str(store_of(server)), "--restore", server.url, "--json")
    assert [row["server"] for row in json.loads(again.stdout)["threads"]] == ["there"]
    assert_it_goes_on(server, thread)


def test_classes_of_the_program_in_the_state(dev) -> None:
    """The server's own list of threads has their values in it, as pickles of the program's classes. It reads it before
    the program is loaded, fails, and begins an empty list, however it was stopped. Then the threads are put back."""
    server = dev(HOLDFAST)
    thread = interrupted_thread(server, "use classes", owner="ada")
    server.stop(signal.SIGTERM)
    server.start()
    assert server.must("GET", f"/threads/{thread}")["metadata"]["owner"] == "ada"
    own = "[Note(text='kept'), Plan(steps=['one'])]"
    assert_it_goes_on(server, thread, text="use classes", own=own)


def test_sigkill_in_the_middle_of_a_run(dev) -> None:
    """A run that was cut off is not repeated by itself; one that had not begun is carried out."""
    server = dev(HOLDFAST)
    thread = server.new_thread()
    cut_off = begin_to_wait(server, thread)
    other = server.new_thread()
    given = {"messages": [{"role": "user", "content": "queued"}]}  # the one worker of the server is busy
    queued = server.must("POST", f"/threads/{other}/runs", {"assistant_id": "agent", "input": given})["run_id"]
    wait_until(lambda: queued in rows_of(server), "the list of runs is copied", server.log)
    server.stop(signal.SIGKILL)
    (server.directory / "go on").touch()
    server.start()
    state = server.state(thread)
    assert (contents(state["values"]), state["next"]) == (["wait"], ["think"])
    assert server.must("GET", f"/threads/{thread}/runs/{cut_off}")["status"] == "interrupted"
    assert server.said("can't keep an entry") == 0
    assert server.must("GET", f"/threads/{thread}")["status"] == "idle"
    gone_on = server.must("POST", f"/threads/{thread}/runs/wait", {"assistant_id": "agent", "input": None})
    assert contents(gone_on) == ["wait", "thought"]
    assert gone_on["__interrupt__"][0]["value"] == QUESTION
    path = f"/threads/{other}/runs/{queued}"
    wait_until(
        lambda: server.must("GET", path)["status"] in ("interrupted", "success"), "it was carried out", server.log
    )
    assert contents(server.state(other)["values"]) == ["queued", "thought"]


@pytest.mark.servers
@pytest.mark.parametrize("shared_store", ["postgres", "redis"], indirect=True)
def test_sigkill_with_a_store_on_a_server(dev, shared_store: Store) -> None:
    """The server makes the store: what that takes must not block its event loop either."""
    server = dev(HOLDFAST, HOLDFAST_URL=shared_store.url)
    thread = interrupted_thread(server, owner="ada")
    server.stop(signal.SIGKILL)
    server.start()
    assert server.must("GET", f"/threads/{thread}")["metadata"]["owner"] == "ada"
    assert_it_goes_on(server, thread)


def test_sigkill_later(dev) -> None:
    """After the server has written its list of threads. As it comes, the row is there then, and nothing behind it."""
    ours, theirs = dev(HOLDFAST), dev(None)
    threads = {server: interrupted_thread(server) for server in (ours, theirs)}
    for server, thread in threads.items():
        assert_it_stands_where_it_stood(server, thread)
    for server, thread in threads.items():
        server.wait_until_it_has_written_its_list(thread)
    for server in threads:
        server.stop(signal.SIGKILL)
        server.start()
    assert_it_goes_on(ours, threads[ours])
    assert theirs.ask("GET", f"/threads/{threads[theirs]}")[0] == 200
    status, state = theirs.ask("GET", f"/threads/{threads[theirs]}/state")
    assert status != 200 or (contents(state["values"] or {}), state["interrupts"]) == ([], [])


def test_hot_reload(dev) -> None:
    server = dev(HOLDFAST, reload=True)
    thread = interrupted_thread(server)
    reload(server)
    assert_it_goes_on(server, thread, "second")
    # The store's own files don't count as changes of the program.
    assert server.said("WatchFiles detected changes") == server.said(
        "WatchFiles detected changes in 'agent.py'. Reloading"
    )


def test_as_it_comes_sigterm_and_a_reload_keep_the_state(dev) -> None:
    """The other half of the control: the two ways of stopping that the server itself takes care of."""
    server = dev(None, reload=True)
    thread = interrupted_thread(server)
    reload(server)
    assert_it_stands_where_it_stood(server, thread)
    server.stop(signal.SIGTERM)
    server.start()
    assert_it_goes_on(server, thread, "second")


def test_as_it_comes_sigkill_at_once_loses_thread_and_state(dev) -> None:
    server = dev(None)
    with_classes = interrupted_thread(server, "use classes")
    server.stop(signal.SIGTERM)
    server.start()
    # Not even a kill is needed here: see test_classes_of_the_program_in_the_state.
    assert server.ask("GET", f"/threads/{with_classes}")[0] == 404
    thread = interrupted_thread(server)
    server.stop(signal.SIGKILL)
    server.start()
    assert server.ask("GET", f"/threads/{thread}/state")[0] == 404
    server.must("POST", "/threads", {"thread_id": thread, "metadata": {"graph_id": "agent"}})
    state = server.state(thread)
    assert (contents(state["values"] or {}), state["interrupts"]) == ([], [])


def test_rolling_back_copying_and_deleting(dev) -> None:
    server = dev(HOLDFAST)
    thread = server.new_thread()
    server.run(thread, "just think")
    waiting = begin_to_wait(server, thread)
    values = server.run(thread, "something else", multitask_strategy="rollback")
    assert contents(values) == ["just think", "thought", "something else", "thought"]
    assert server.ask("GET", f"/threads/{thread}/runs/{waiting}")[0] == 404
    assert contents(server.state(thread)["values"]) == ["just think", "thought", "something else", "thought"]

    copied = server.must("POST", f"/threads/{thread}/copy")["thread_id"]
    assert server.state(copied)["values"] == server.state(thread)["values"]
    assert server.must("GET", f"/threads/{copied}/history?limit=20")

    server.must("DELETE", f"/threads/{thread}")
    assert server.ask("GET", f"/threads/{thread}/state")[0] == 404
    assert contents(server.run(copied, "and on"))[-2:] == ["and on", "thought"]
    listed = holdfast("langgraph", "threads", "--store", str(store_of(server)), "--json")
    assert [row["thread_id"] for row in json.loads(listed.stdout)["threads"]] == [copied]
    assert (server.said("BlockingError"), server.said("Traceback")) == (0, 0)
    server.stop(signal.SIGTERM)
    with SyncClient.sqlite(store_of(server)) as client:
        assert client.verify().ok


def test_the_store_that_the_environment_names_with_several_event_loops(dev, tmp_path: Path) -> None:
    """Each of the server's event loops opens the store for itself."""
    environment = {"HOLDFAST_URL": f"file://{tmp_path}/elsewhere", "HOLDFAST_TTL_SECONDS": "86400"}
    server = dev(HOLDFAST, BG_JOB_ISOLATED_LOOPS="true", **environment)
    thread = interrupted_thread(server)
    assert_it_stands_where_it_stood(server, thread)
    assert server.said("Using custom checkpointer: DevSaver") >= 2
    server.stop(signal.SIGTERM)
    assert not store_of(server).exists()
    with SyncClient.files(tmp_path / "elsewhere") as client:
        [session] = client.sessions()
        assert (session.session_id, session.head.ttl_seconds) == (f"lg/{thread}", 86400)


def reload(server: DevServer) -> None:
    """Changes the program, and waits until the server has started again with it."""
    changed = server.directory / "agent.py.new"
    changed.write_text(server.agent.read_text().replace('"first"', '"second"'))
    changed.replace(server.agent)  # in one go: half a program would not start
    wait_until(lambda: server.said("Application started up") >= 2, "it has started again", server.log)

    def answers() -> bool:
        try:
            return server.ask("GET", "/ok")[0] == 200
        except OSError:
            return False

    wait_until(answers, "it answers again", server.log)
