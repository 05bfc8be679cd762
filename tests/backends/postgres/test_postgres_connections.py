"""Connections: for each event loop its own, never more than allowed, none left over, and the dead are found."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from open_transaction import OpenTransaction, connected, opened, schema_of
from paths import SUPPORT
from servers.writers import until
from stores import python, python_process

from holdfast import Client, StoreError, SyncClient
from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit, Row, RowKey, RowWrite
from holdfast.backends.postgres import open_url
from holdfast.backends.postgres.backend import PostgresBackend
from holdfast.format.rows import head

pytestmark = pytest.mark.servers


HERE = str(SUPPORT)


def connections_of(url: str, name: str) -> int:
    with connected(url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (name,)
        ).fetchone()
    assert found is not None
    return found[0]


def named(url: str) -> tuple[str, str]:
    """The URL with a name that tells its connections from others'."""
    name = schema_of(url)
    return f"{url}&application_name={name}", name


def test_a_thousand_saves_at_once_wait_and_none_fails(postgres_url):
    url, name = named(postgres_url)

    async def use() -> None:
        async with Client.open(url, max_connections=2) as client:
            await client.save("a", session_id="s0")
            saved = await asyncio.gather(*(client.save("a", session_id=f"s{n % 50}") for n in range(1000)))
            assert len(set(saved)) == 1000
            restored = await asyncio.gather(*(client.restore(id_) for id_ in saved[:300]))
            assert [checkpoint.checkpoint_id for checkpoint in restored] == saved[:300]
            assert connections_of(postgres_url, name) <= 2

    asyncio.run(use())


def test_threads_share_the_connections_that_there_may_be(postgres_url):
    url, name = named(postgres_url)
    with opened(url, "thread", max_connections=2) as client, ThreadPoolExecutor(32) as threads:
        saved = list(threads.map(lambda n: client.save("a", session_id=f"s{n % 50}"), range(600)))
        assert len(set(saved)) == 600
        restored = list(threads.map(client.restore, saved[:100]))
        assert [checkpoint.checkpoint_id for checkpoint in restored] == saved[:100]
        assert connections_of(postgres_url, name) == 2


def test_all_who_ask_without_a_loop_share_connections(postgres_url):
    """As savers do that are made on one client, one for each request."""
    url, name = named(postgres_url)
    backend = open_url(url)
    several = [blocking(backend) for _ in range(3)]
    assert [one.last_change() for one in several] == [0, 0, 0]
    assert connections_of(postgres_url, name) == 1
    several[0].close()
    with pytest.raises(StoreError, match="closed"):
        several[1].last_change()


def test_threads_that_commit_while_another_commits_go_together(postgres_url, monkeypatch):
    """The first of them waits for a lock of its tree; those that come meanwhile are one transaction."""
    batches: list[int] = []
    carry_out = PostgresBackend._carry_out

    async def counted(self: PostgresBackend, commits: list[Commit], locks: list[int]) -> list[BaseException | None]:
        batches.append(len(commits))
        return await carry_out(self, commits, locks)

    with SyncClient.open(postgres_url) as client, ThreadPoolExecutor(17) as threads:
        for number in range(17):
            client.save("a", session_id=f"s{number}")
        holder = OpenTransaction(postgres_url)
        holder.lock([Commit(client._ctx.memory.get(head.session_key("s0")).checkpoint.tree)])
        monkeypatch.setattr(PostgresBackend, "_carry_out", counted)
        first = threads.submit(client.save, "a", session_id="s0")
        until(lambda: batches == [1], "the first one's turn")
        others = [threads.submit(client.save, "a", session_id=f"s{number}") for number in range(1, 17)]
        until(lambda: client._ctx.backend._queue.qsize() == 16, "the others' waiting")
        holder.rollback()
        assert len({future.result(240) for future in (first, *others)}) == 17
    assert batches == [1, 16]


def test_threads_that_read_without_a_pause_do_not_keep_out_another(postgres_url):
    """They once took each connection again before a thread that waited could wake up: it was told
    that all were in use."""
    backend = open_url(postgres_url, max_connections=1, timeout=20).without_loop()
    run_inline(backend.setup())
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            run_inline(backend.last_change())

    with ThreadPoolExecutor(3) as threads:
        reading = [threads.submit(read) for _ in range(3)]
        try:
            for _ in range(100):
                assert run_inline(backend.rows([RowKey("head", b"s", bytes(16))])) == [None]
        finally:
            stop.set()
        for each in reading:
            each.result()
    run_inline(backend.close())


def of_kind(backend: PostgresBackend, kind: str) -> tuple[PostgresBackend, Callable[..., Any]]:
    """The backend for an event loop or for a thread, and how its coroutines are run."""
    return (backend, asyncio.run) if kind == "loop" else (backend.without_loop(), run_inline)


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_who_waits_too_long_for_a_connection_is_told(postgres_url, kind):
    backend, run = of_kind(open_url(postgres_url, max_connections=1, timeout=3), kind)

    async def use() -> None:
        await backend.setup()
        async with backend._connections.acquire():
            with pytest.raises(StoreError, match="max_connections"):
                await backend.last_change()
        assert await backend.last_change() == 0
        await backend.close()
        with pytest.raises(StoreError, match="closed"):
            await backend.last_change()

    run(use())


def test_one_client_serves_two_loops_one_after_the_other_and_closing_leaves_nothing(postgres_url):
    url, name = named(postgres_url)
    client = Client.open(url)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(3):
            asyncio.run(client.save("a", execution_state={"n": n}, session_id="s"))
            gc.collect()
        assert len(asyncio.run(client.timeline(session_id="s"))) == 3
        until(lambda: connections_of(postgres_url, name) <= 2, "the end of the connections of loops that have ended")
        asyncio.run(client.close())
        gc.collect()
    until(lambda: connections_of(postgres_url, name) == 0, "the end of all connections")
    with pytest.raises(StoreError, match="closed"):
        asyncio.run(client.save("a"))


@pytest.mark.parametrize(
    "program",
    [
        "client = SyncClient.open(url); client.save('a', session_id='s')",
        "import asyncio; client = Client.open(url); asyncio.run(client.save('a', session_id='s'))",
        "import asyncio; asyncio.run(Client.open(url).save('a', session_id='s'))",
    ],
)
def test_a_program_that_never_closes_its_client_ends_without_a_word(postgres_url, program):
    done = python(f"import sys; from holdfast import Client, SyncClient; url = sys.argv[1]\n{program}", postgres_url)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_a_forked_child_opens_its_own(postgres_url, kind):
    done = python(
        """
        import os, sys
        sys.path.append(sys.argv[-2])
        from open_transaction import opened
        client = opened(sys.argv[1], sys.argv[-1])
        client.save("a", session_id="parent")
        children = []
        for n in range(2):
            child = os.fork()
            if child == 0:
                for _ in range(10):
                    client.save("a", session_id=f"child {n}")
                os._exit(0)
            children.append(child)
        for _ in range(10):
            client.save("a", session_id="parent")
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        client.save("a", session_id="parent")
        print(sorted((session.session_id, session.saves) for session in client.sessions()))
        client.close()
        """,
        postgres_url,
        HERE,
        kind,
    )
    assert done.stdout.strip() == "[('child 0', 10), ('child 1', 10), ('parent', 12)]"


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_a_forked_child_that_ends_leaves_its_parents_connections_alone(postgres_url, kind):
    url, name = named(postgres_url)
    done = python(
        """
        import os, sys
        import psycopg
        sys.path.append(sys.argv[-2])
        from open_transaction import opened
        address, name = sys.argv[1].partition("?")[0], sys.argv[2]

        def servers():
            with psycopg.connect(address) as connection:
                query = "SELECT pid FROM pg_stat_activity WHERE application_name = %s ORDER BY pid"
                return connection.execute(query, (name,)).fetchall()

        client = opened(sys.argv[1], sys.argv[-1])
        client.save("a", session_id="s")
        before = servers()
        child = os.fork()
        if child == 0:
            sys.exit(0)  # with all that Python does at its end
        assert os.waitpid(child, 0)[1] == 0
        print(len(before), before == servers())
        client.close()
        """,
        url,
        name,
        HERE,
        kind,
    )
    assert (done.stdout.strip(), done.stderr) == ("1 True", "")


def test_what_another_thread_closes_is_let_go_by_the_loop_that_uses_it(postgres_url):
    """A socket that is gone and still in a loop's hands would be taken for the next one of that number."""
    url, name = named(postgres_url)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def in_loop(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(240)

    try:
        for _ in range(5):
            client = Client.open(url)
            in_loop(client.save("a", session_id="s"))
            assert connections_of(postgres_url, name) == 1
            asyncio.run(client.close())  # in a loop of this thread
            deadline = time.monotonic() + 240
            while connections_of(postgres_url, name):
                assert time.monotonic() < deadline
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_the_driver_and_we_wait_for_one_connection_in_turn(postgres_url, kind):
    backend, run = of_kind(open_url(postgres_url, max_connections=1), kind)

    async def use() -> None:
        for number in range(12):
            write = RowWrite(RowKey("head", b"s"), b"%d" % number, number)
            assert await backend.commit_all([Commit(b"tree", rows=[write])]) == [None]  # by libpq
            assert await backend.scan("head") == [(write.key, Row(b"%d" % number, number + 1))]  # by the driver
            assert await backend.rows([write.key]) == [Row(b"%d" % number, number + 1)]
        large = Commit(b"tree", blobs={bytes(32): bytes(24_000_000)})  # fills the socket
        assert await backend.commit_all([large]) == [None]
        assert await backend.blobs([bytes(32)]) == [bytes(24_000_000)]
        await backend.close()

    run(use())


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_connections_that_the_server_ended_are_replaced(postgres_url, kind):
    """Idle ones, before anything is sent over them: neither a read nor a save fails."""
    url, name = named(postgres_url)
    with opened(url, kind) as client:
        client.save("a", session_id="s")
        for _ in range(3):
            end_connections(postgres_url, name)
            client.save("a", session_id="s")
            end_connections(postgres_url, name)
            assert client.latest(session_id="s") is not None
        assert len(client.timeline(session_id="s")) == 4


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_wait_for_an_answer_and_the_client_goes_on(postgres_url):
    """The commit waits for a lock that nobody gives back before the signal has come."""
    with SyncClient.open(postgres_url) as client:
        client.save("a", session_id="s", execution_state={"n": 0})
        tree = client._ctx.memory.get(head.session_key("s")).checkpoint.tree
    holder = OpenTransaction(postgres_url)
    holder.lock([Commit(tree)])
    process = python_process(
        """
        import sys
        from holdfast import SyncClient
        with SyncClient.open(sys.argv[1]) as client:
            try:
                client.save("a", session_id="s", execution_state={"n": 1})
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            sys.stdin.readline()
            client.save("a", session_id="s", execution_state={"n": 2})
            print([entry.step_index for entry in client.timeline(session_id="s")], flush=True)
        """,
        postgres_url,
    )
    waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with connected(postgres_url) as connection:
        connection.autocommit = True
        until(lambda: connection.execute(waiting).fetchall(), "the wait for the lock")
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        holder.rollback()
        until(lambda: not connection.execute(waiting).fetchall(), "the end of what nobody waits for any more")
    said, complaint = process.communicate("\n", timeout=240)
    assert said in ("[1, 0]\n", "[2, 1, 0]\n"), complaint  # what was interrupted may have been carried out, whole


def test_who_asks_when_another_thread_closes_gets_an_answer_or_is_told(postgres_url):
    for _ in range(5):
        client = SyncClient.open(postgres_url)
        client.save("a", session_id="s")
        answers: list[object] = []

        def ask(client=client, answers=answers) -> None:
            try:
                while True:
                    answers.append(client.latest(session_id="s"))
            except StoreError as told:
                answers.append(told)

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda answers=answers: len(answers) > 10, "answers")
        client.close()
        for thread in threads:
            thread.join(240)
            assert not thread.is_alive()
        assert all("closed" in str(error) for error in answers if isinstance(error, StoreError))


def end_connections(url: str, name: str) -> None:
    with connected(url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 240000) FROM pg_stat_activity WHERE application_name = %s", (name,)
        )


def test_a_neighbour_that_can_not_be_written_fails_alone(postgres_url):
    """One of three commits of a batch breaks a rule of the tables: the others are done."""
    from holdfast.backends.port import Commit, SegmentDelete
    from holdfast.testing.harness import TREE, append, record

    async def use() -> None:
        backend = open_url(postgres_url)
        assert await backend.commit_all([Commit(TREE, segments=[append(1, 0, b"a", b"b"), append(2, 0, b"x")])]) == [
            None
        ]
        twice = Commit(TREE, record(2), delete_segments=[SegmentDelete(1, 0, 2, ((0, 1, b"a"), (0, 1, b"a")))])
        outcomes = await backend.commit_all([Commit(TREE, record(1)), twice, Commit(TREE, record(3))])
        assert [type(outcome) for outcome in outcomes] == [type(None), StoreError, type(None)]
        assert [found.sequence for found in await backend.session_records(b"run-001")] == [3, 1]
        await backend.close()

    asyncio.run(use())


@pytest.mark.slow
def test_the_bytes_on_disk_stay_near_those_of_the_state(postgres_url):
    """1,000 steps of a conversation: tables and indexes, whether or not the server has vacuumed."""
    from benchmarks.conversation import Conversation, compact_json

    conversation = Conversation()
    with SyncClient.open(postgres_url) as client:
        for _ in range(1000):
            client.save("a", session_id="s", execution_state=conversation.advance().state)
    backend = open_url(postgres_url)
    total = asyncio.run(backend.usage()).total_bytes
    asyncio.run(backend.close())
    assert total <= 2.5 * len(compact_json(conversation.state))


def test_what_was_deleted_makes_room(postgres_url):
    with SyncClient.open(postgres_url) as client:
        for step in range(30):
            client.save("a", session_id="s", execution_state={"text": f"{step}" * 20_000}, ttl_seconds=0.001)
        client.save("a", session_id="t")
        client.gc()
        assert client.verify().ok


def test_psycopg_is_not_imported_before_it_is_needed():
    done = python("import sys, holdfast; holdfast.SyncClient.memory().save('a'); print('psycopg' in sys.modules)")
    assert done.stdout.strip() == "False"
    assert psycopg.__version__
