"""Commits that fail together: each waiter gets an error of its own."""

from __future__ import annotations

import asyncio
import copy
import threading
import traceback
from collections.abc import Sequence

import pytest
from stores import as_awaitable

from holdfast.backends.bridge.event_loop import AsyncBridge
from holdfast.backends.bridge.inline import InlineBridge
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.bridge.worker_thread import ThreadBridge
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.port import Commit, CommitConflict, RowKey, RowWrite
from holdfast.errors import StoreError

COMMITS = [Commit(tree=b"", rows=[RowWrite(RowKey("tag", b"%d" % n), b"value")]) for n in range(8)]


class OddError(Exception):
    """One that can't be copied by what it keeps."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class Failing(MemoryBackend):
    def __init__(self, error: BaseException, *, is_raised: bool) -> None:
        super().__init__()
        self.error = error
        self.is_raised = is_raised

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        if self.is_raised:
            raise self.error
        of_batch = copy.copy(self.error)
        of_batch.__cause__ = self.error.__cause__
        return [of_batch] * len(commits)


def with_cause() -> StoreError:
    error = StoreError("the connection was lost", checkpoint_id="nobody's")
    error.__cause__ = OSError("cut")
    return error


@pytest.mark.parametrize("is_raised", [True, False])
@pytest.mark.parametrize("bridge", [ThreadBridge, AsyncBridge])
def test_tasks(bridge, is_raised: bool):
    shared = with_cause()

    async def scenario() -> list[BaseException]:
        backend = Failing(shared, is_raised=is_raised)
        waiting = [(bridge(as_awaitable(backend) if bridge is AsyncBridge else backend)).commit] * len(COMMITS)

        async def carried_out(commit, one: Commit) -> None:
            await commit(one)

        return await asyncio.gather(*map(carried_out, waiting, COMMITS), return_exceptions=True)

    errors = asyncio.run(scenario())
    assert len({id(error) for error in errors}) == len(COMMITS)
    for number, error in enumerate(errors):
        assert isinstance(error, StoreError)
        assert str(error) == "the connection was lost"
        assert str(error.__cause__) == "cut"
        error.checkpoint_id = str(number)
    assert [error.checkpoint_id for error in errors] == [str(number) for number in range(len(COMMITS))]


@pytest.mark.parametrize("is_raised", [True, False])
def test_threads(is_raised: bool):
    bridge = InlineBridge(Failing(with_cause(), is_raised=is_raised))
    heard: list[BaseException] = []
    both = threading.Barrier(len(COMMITS))

    async def carried_out(one: Commit) -> None:
        outcome = bridge.commit(one)
        both.wait(30)  # all are in the queue: whoever leads has all of them
        await outcome

    def work(one: Commit) -> None:
        try:
            run_inline(carried_out(one))
        except StoreError as error:
            heard.append(error)

    threads = [threading.Thread(target=work, args=(one,), daemon=True) for one in COMMITS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(heard) == len({id(error) for error in heard}) == len(COMMITS)
    for error in heard:  # each says where it was raised, once
        assert sum(frame.name == "work" for frame in traceback.extract_tb(error.__traceback__)) == 1


def test_what_can_not_be_copied_is_told_in_words_with_its_cause():
    odd = OddError(1, 2)

    async def scenario() -> list[BaseException]:
        bridge = ThreadBridge(Failing(odd, is_raised=True))
        return await asyncio.gather(*(bridge.commit(one) for one in COMMITS), return_exceptions=True)

    errors = asyncio.run(scenario())
    assert len({id(error) for error in errors}) == len(COMMITS)
    for error in errors:
        assert "1 and 2" in str(error)
        assert error is odd or error.__cause__ is odd


def test_a_refusal_stays_one():
    refusal = CommitConflict("row", COMMITS[0].rows[0].key)

    async def scenario() -> list[BaseException]:
        bridge = ThreadBridge(Failing(refusal, is_raised=False))
        return await asyncio.gather(*(bridge.commit(one) for one in COMMITS), return_exceptions=True)

    errors = asyncio.run(scenario())
    assert {(type(error), error.kind, error.detail) for error in errors} == {
        (CommitConflict, "row", COMMITS[0].rows[0].key)
    }
    assert len({id(error) for error in errors}) == len(COMMITS)
