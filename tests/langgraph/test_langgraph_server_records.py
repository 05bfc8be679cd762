"""The lists of `langgraph dev`, copied to a store and back. test_langgraph_dev.py has them with the real server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph_savers import checkpoint, config
from stores import Store

from holdfast.adapters.langgraph.server_records import LISTS, SPACE, ServerRecords
from holdfast.backends.bridge.step import run_inline
from holdfast.langgraph import HoldfastSaver

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def empty() -> dict[str, list[dict[str, Any]]]:
    return {name: [] for name in LISTS}


def a_thread(**fields: Any) -> dict[str, Any]:
    row = {"thread_id": uuid.uuid4(), "created_at": NOW, "updated_at": NOW, "metadata": {}, "status": "idle"}
    return {**row, "config": {}, "values": {"large": [object()]}, **fields}


def a_run(thread: dict[str, Any], status: str, **fields: Any) -> dict[str, Any]:
    row = {"run_id": uuid.uuid4(), "thread_id": thread["thread_id"], "metadata": {"created_by": "system"}}
    return {**row, "status": status, "kwargs": {"input": {"n": 1}}, "updated_at": NOW, **fields}


class Server:
    """A server's lists, and what copies them. A new one on the same store is the server's next start."""

    def __init__(self, store: Store, lists: dict[str, list[dict[str, Any]]] | None = None) -> None:
        self.lists = empty() if lists is None else lists
        self.saver = HoldfastSaver(store.client())
        self.records = ServerRecords(self.saver._threads.ctx, self.lists)
        self.do(self.records.restore())
        self.copy()

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return run_inline(coroutine)

    def copy(self) -> None:
        self.do(self.records.copy_changes())

    def rows(self) -> int:
        return len(self.do(self.saver._threads.ctx.backend.scan(SPACE)))


def test_what_was_lost_comes_back(shared_store: Store) -> None:
    server = Server(shared_store)
    thread = a_thread(metadata={"owner": "ada"}, status="interrupted", interrupts={"1": [{"value": "go on?"}]})
    assistant = {"assistant_id": uuid.uuid4(), "version": 2, "name": "mine", "metadata": {}, "updated_at": NOW}
    system = {"assistant_id": uuid.uuid4(), "version": 1, "name": "agent", "metadata": {"created_by": "system"}}
    version = {"assistant_id": assistant["assistant_id"], "version": 1, "config": {}, "metadata": {}}
    cron = {"cron_id": uuid.uuid4(), "schedule": "* * * * *", "next_run_date": NOW, "metadata": {}}
    server.lists["threads"].append(thread)
    server.lists["assistants"] += [assistant, system]
    server.lists["assistant_versions"] += [version, {**version, "version": 2}]
    server.lists["crons"].append(cron)
    server.lists["runs"].append(a_run(thread, "success"))
    server.copy()
    cron["next_run_date"] = NOW + timedelta(minutes=1)
    server.lists["threads"][0] = thread = {**thread, "metadata": {"owner": "ada", "seen": True}}
    server.copy()
    again = Server(shared_store)
    assert again.lists["threads"] == [{**thread, "values": None}]
    assert again.lists["assistants"] == [assistant]
    assert again.lists["assistant_versions"] == [version, {**version, "version": 2}]
    assert again.lists["crons"] == [cron]
    assert [run["status"] for run in again.lists["runs"]] == ["success"]
    again.lists["threads"].clear()
    again.copy()
    assert Server(shared_store).lists["threads"] == []
    assert shared_store.client().verify().ok


def test_nothing_is_written_while_nothing_changes(sqlite_store: Store) -> None:
    server = Server(sqlite_store)
    server.lists["threads"] += [a_thread() for _ in range(3)]
    server.copy()
    client, recorder = sqlite_store.recorded()
    server.records._ctx.backend = client._ctx.backend
    server.copy()
    server.do(server.records.copy_thread(str(server.lists["threads"][1]["thread_id"]), client._ctx.backend))
    assert recorder.commits == []
    server.lists["threads"][1]["status"] = "busy"
    server.do(server.records.copy_thread(str(server.lists["threads"][1]["thread_id"]), client._ctx.backend))
    assert len(recorder.commits) == 1


def test_an_older_entry_of_the_servers_own_list_gives_way(sqlite_store: Store) -> None:
    server = Server(sqlite_store)
    threads = [a_thread(metadata={"n": number}) for number in range(2)]
    finished, under_way = a_run(threads[0], "success"), a_run(threads[1], "running")
    server.lists["threads"] += [{**one, "updated_at": NOW + timedelta(seconds=5)} for one in threads]
    server.lists["runs"] += [finished, under_way]
    server.copy()
    lists = empty()  # as the server wrote them some seconds before, and read them at its start
    lists["threads"] += [
        {**threads[0], "metadata": {"n": "old"}, "values": {"kept": 1}},
        {**threads[1], "metadata": {"n": "newer"}, "updated_at": NOW + timedelta(seconds=9)},
    ]
    lists["runs"] += [{**run, "status": "pending", "updated_at": NOW + timedelta(1)} for run in (finished, under_way)]
    again = Server(sqlite_store, lists)
    assert [one["metadata"]["n"] for one in again.lists["threads"]] == [0, "newer"]
    assert again.lists["threads"][0]["values"] == {"kept": 1}
    assert [run["status"] for run in again.lists["runs"]] == ["success", "interrupted"]


def test_a_run_is_carried_out_again_only_if_it_had_not_begun(sqlite_store: Store) -> None:
    server = Server(sqlite_store)
    thread = a_thread(status="busy")
    begun, waiting = (a_run(thread, "pending", created_at=NOW + timedelta(number)) for number in range(2))
    server.lists["threads"].append(thread)
    server.lists["runs"] += [begun, waiting]
    server.copy()
    about: Any = {"source": "input", "step": -1, "run_id": str(begun["run_id"]), "graph_id": "agent"}
    server.saver.put(config(str(thread["thread_id"])), checkpoint(x=1), about, {})
    again = Server(sqlite_store)
    assert [run["status"] for run in again.lists["runs"]] == ["interrupted", "pending"]
    assert again.lists["threads"][0]["status"] == "busy"  # one of its runs waits


def test_what_the_server_adds_to_a_run_while_it_runs_is_left_out(
    sqlite_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(sqlite_store)
    thread = a_thread()
    internal = {"configurable": {"thread_id": "t", "__pregel_node_finished": lambda: None}}
    server.lists["threads"].append(thread)
    server.lists["runs"].append(a_run(thread, "running", kwargs={"input": None, "config": internal}))
    server.lists["crons"].append({"cron_id": "1", "metadata": {}, "payload": object()})
    for _ in range(2):
        server.lists["crons"][0]["status"] = str(uuid.uuid4())  # it changes, and can't be kept again
        server.copy()
    assert server.rows() == 2
    [refusal] = [record.message for record in caplog.records if "can't keep" in record.message]
    assert "crons" in refusal
    [run] = Server(sqlite_store).lists["runs"]
    assert run["kwargs"] == {"input": None, "config": {"configurable": {"thread_id": "t"}}}


def test_threads_that_have_only_checkpoints_come_back(sqlite_store: Store) -> None:
    saver = HoldfastSaver(sqlite_store.client())
    name = str(uuid.uuid4())
    about: Any = {"source": "loop", "step": 1, "graph_id": "agent", "assistant_id": "a"}
    for thread in (name, "no uuid"):
        saver.put(config(thread), checkpoint(x=1), about, {})
    saver.put(
        config(str(uuid.uuid4())), checkpoint(x=1), {"source": "loop", "step": 1}, {}
    )  # of no graph that is known
    [thread] = Server(sqlite_store).lists["threads"]
    assert (str(thread["thread_id"]), thread["metadata"]) == (name, {"graph_id": "agent", "assistant_id": "a"})


def test_a_damaged_row_keeps_no_server_from_starting(sqlite_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    import sqlite3

    server = Server(sqlite_store)
    server.lists["threads"] += [a_thread(), a_thread()]
    server.copy()
    with sqlite3.connect(sqlite_store.where / "store.db") as connection:
        connection.execute(
            "UPDATE row SET value = zeroblob(9) WHERE key = (SELECT min(key) FROM row WHERE space = ?)", (SPACE,)
        )
    assert len(Server(sqlite_store).lists["threads"]) == 1
    assert "can't put back" in caplog.text
    assert not sqlite_store.client().verify().ok


def test_it_watches_until_it_is_cancelled(sqlite_store: Store) -> None:
    async def scenario() -> int:
        lists = empty()
        saver = HoldfastSaver(sqlite_store.async_client())
        records = ServerRecords(saver._awaited_threads.ctx, lists)
        watching = asyncio.ensure_future(records.watch())
        lists["threads"].append(a_thread())
        found: list[Any] = []
        for _ in range(1000):  # until it has looked
            found = found or await saver._awaited_threads.ctx.backend.scan(SPACE)
            await asyncio.sleep(0.01 if not found else 0)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return len(found)

    assert asyncio.run(scenario()) == 1
