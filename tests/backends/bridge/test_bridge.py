"""The bridges to blocking backends: what is read together goes to the thread once, and so does a first save."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from holdfast import Client
from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.bridge.event_loop import AsyncBridge
from holdfast.backends.bridge.inline import InlineBridge
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.bridge.worker_thread import ThreadBridge
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.port import AsyncBackend, Backend, Commit, CommitConflict, Row, RowKey, RowWrite
from holdfast.errors import CorruptError

FIRST, SECOND = RowKey("tag", b"first"), RowKey("tag", b"second")


class Counting(ThreadBridge):
    """Counts what goes to the thread."""

    def __init__(self, backend: MemoryBackend) -> None:
        super().__init__(backend)
        self.calls = 0
        self.commits = 0

    def _submit(self, commit: Commit | None, call: Callable[[], Any] | None) -> asyncio.Future[Any]:
        self.calls += call is not None
        self.commits += commit is not None
        return super()._submit(commit, call)


async def follow(backend: Backend) -> tuple[bytes, int]:
    """The value of the row that a row names, and the thread it was read in."""
    [named] = await backend.rows([FIRST])
    assert named is not None
    [row] = await backend.rows([RowKey("tag", named.value)])
    assert row is not None
    return row.value, threading.get_ident()


ROWS = Commit(tree=b"", rows=[RowWrite(FIRST, SECOND.key), RowWrite(SECOND, b"found")])


def test_reads_that_depend_on_each_other_go_to_the_thread_once():
    async def main() -> None:
        bridge = Counting(MemoryBackend())
        await bridge.commit(ROWS)
        value, thread = await bridge.batch_reads(follow)
        assert value == b"found"
        assert thread != threading.get_ident()
        assert bridge.calls == 1
        await bridge.close()

    asyncio.run(main())


def test_without_an_event_loop_they_are_read_on_the_spot():
    bridge = InlineBridge(MemoryBackend())
    run_inline(bridge.commit(ROWS))
    assert run_inline(bridge.batch_reads(follow)) == (b"found", threading.get_ident())


def test_what_such_reads_raise_comes_back_and_the_thread_goes_on():
    async def main() -> None:
        bridge = ThreadBridge(MemoryBackend())

        async def fail(backend: Backend) -> None:
            await backend.rows([FIRST])
            raise CorruptError("damaged")

        with pytest.raises(CorruptError, match="damaged"):
            await bridge.batch_reads(fail)
        assert await bridge.rows([FIRST]) == [None]
        await bridge.close()

    asyncio.run(main())


class Readied(MemoryBackend):
    """Writes down, in order, by which thread it was made ready and asked for rows."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.heard: list[tuple[str, int]] = []

    def get_ready(self) -> None:
        self.heard.append(("get ready", threading.get_ident()))
        if self.fails:
            raise CorruptError("damaged")

    def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        self.heard.append(("rows", threading.get_ident()))
        return super().rows(keys)


def test_an_opened_client_is_made_ready_once_in_the_thread_that_answers():
    async def main() -> None:
        backend = Readied()
        async with Client(backend) as client:
            await client._ctx.backend.rows([FIRST])
            await client._ctx.backend.rows([FIRST])
        assert [what for what, _ in backend.heard] == ["get ready", "rows", "rows"]
        assert len({thread for _, thread in backend.heard} - {threading.get_ident()}) == 1

    asyncio.run(main())


def test_who_opens_no_client_waits_for_nothing_but_the_call():
    async def main() -> None:
        backend = Readied()
        await ThreadBridge(backend).rows([FIRST])
        assert [what for what, _ in backend.heard] == ["rows"]

    asyncio.run(main())


def test_a_backend_that_can_t_be_made_ready_answers_all_the_same():
    async def main() -> None:
        backend = Readied(fails=True)
        async with Client(backend) as client:
            assert await client.latest(session_id="s") is None
        assert backend.heard[0][0] == "get ready"

    asyncio.run(main())


@pytest.mark.parametrize("length", [40, 400])
def test_the_first_declared_append_of_a_process_to_a_session_reads_by_one_call_and_commits(length):
    messages = [{"text": "words " * 100, "number": number} for number in range(length)]

    async def main() -> None:
        backend = MemoryBackend()
        await Client(backend).save("agent", execution_state={"messages": messages}, session_id="s")
        client = Client(backend)
        client._ctx.backend = bridge = Counting(backend)
        saved = await client.save("agent", session_id="s", append={"messages": [{"text": "more"}]})
        assert (bridge.calls, bridge.commits) == (1, 1)
        assert (await client.restore(saved)).execution_state == {"messages": [*messages, {"text": "more"}]}
        assert bridge.calls == 2

    asyncio.run(main())


@pytest.mark.parametrize("remembers", [True, False])
def test_where_a_session_stands_is_looked_up_and_read_by_one_call_of_the_thread(remembers):
    messages = [{"text": "words " * 100, "number": number} for number in range(400)]

    async def main() -> None:
        backend = MemoryBackend()
        client = Client(backend)
        await client.save("agent", execution_state={"messages": messages}, session_id="s")
        await client.save("other", session_id="s", append={"messages": [{"text": "more"}]})
        client = client if remembers else Client(backend)
        client._ctx.backend = bridge = Counting(backend)
        found = await client.latest(session_id="s")
        assert found is not None
        assert found.execution_state == {"messages": [*messages, {"text": "more"}]}
        assert bridge.calls == 1
        found = await client.latest("s", agent_id="agent")  # further up
        assert found is not None
        assert found.execution_state == {"messages": messages}
        assert bridge.calls == 2
        assert await client.latest("s", agent_id="nobody") is None
        assert await client.latest(session_id="another") is None
        assert bridge.calls == 4

    asyncio.run(main())


def test_who_waits_for_commits_hears_of_one_of_the_thread():
    async def main() -> None:
        bridge = ThreadBridge(MemoryBackend())

        seen = bridge.committed
        heard = asyncio.ensure_future(bridge.wait_for_commit(seen, 60))
        await asyncio.sleep(0)
        await bridge.commit(ROWS)
        assert await heard
        assert bridge.committed != seen
        await bridge.close()

    asyncio.run(main())


class Slow(MemoryBackend):
    """Says when it commits a batch, and waits to be told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.began, self.may_go_on = threading.Event(), threading.Event()

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        self.batches.append(len(commits))
        self.began.set()
        assert self.may_go_on.wait(60)
        return super().commit_all(commits)


async def committed(bridge: InlineBridge, commit: Commit) -> None:
    await bridge.commit(commit)


def test_a_commit_says_what_was_wrong_with_it():
    bridge = InlineBridge(MemoryBackend())
    run_inline(committed(bridge, ROWS))
    assert bridge.committed == 1
    with pytest.raises(CommitConflict):
        run_inline(committed(bridge, Commit(tree=b"", rows=[RowWrite(FIRST, b"other", 7)])))
    assert bridge.committed == 2
    [row] = run_inline(bridge.rows([FIRST]))
    assert row == Row(SECOND.key, 1)


def test_a_commit_waits_for_the_one_under_way_and_joins_those_that_wait():
    slow = Slow()
    bridge = InlineBridge(slow)
    keys = [RowKey("tag", b"%d" % number) for number in range(4)]

    def commit(key: RowKey) -> None:
        run_inline(committed(bridge, Commit(tree=b"", rows=[RowWrite(key, b"value")])))

    threads = [threading.Thread(target=commit, args=(key,)) for key in keys]
    threads[0].start()
    assert slow.began.wait(60)
    for thread in threads[1:]:
        thread.start()
    deadline = time.monotonic() + 60
    while bridge._queue.qsize() < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    slow.may_go_on.set()
    for thread in threads:
        thread.join(60)
    assert slow.batches == [1, 3]
    assert [row.value for row in run_inline(bridge.rows(keys)) if row] == [b"value"] * 4


class NotifiedBackend:
    """A backend that hears at once, and once, of a commit by another process."""

    capabilities = MemoryBackend().capabilities

    def __init__(self) -> None:
        self.notified = False

    async def wait_for_notify(self) -> None:
        if self.notified:
            await asyncio.Event().wait()
        self.notified = True

    async def close(self) -> None: ...


def test_a_notification_of_the_store_ends_the_wait_for_a_commit_in_an_event_loop():
    async def main() -> None:
        bridge = AsyncBridge(cast("AsyncBackend", NotifiedBackend()))
        seen = bridge.committed
        assert await asyncio.wait_for(bridge.wait_for_commit(seen, 60), 30)
        assert bridge.committed != seen

    asyncio.run(main())


def test_a_notification_of_the_store_ends_the_wait_for_a_commit_without_an_event_loop():
    backend = blocking(cast("AsyncBackend", NotifiedBackend()))
    bridge = InlineBridge(backend)
    seen = bridge.committed
    assert run_inline(bridge.wait_for_commit(seen, 10))
    assert bridge.committed != seen
    run_inline(bridge.close())
