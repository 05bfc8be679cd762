"""Direct: what waits goes together, two batches at most, and a tree's commits in the order in which they were given."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.bridge.event_loop import BATCHES_AT_ONCE, WORTH_HALVING, AsyncBridge
from holdfast.backends.port import Capabilities, Commit, CommitConflict


class Slow:
    """Carries out each batch after some turns of the loop, and writes down what is under way together."""

    def __init__(self, seed: int) -> None:
        self.capabilities = Capabilities("slow", awaitable=True)
        self.done: list[Commit] = []
        self.sizes: list[int] = []
        self.most_at_once = 0
        self._turns = random.Random(seed)
        self._under_way: Counter[bytes] = Counter()
        self._batches = 0

    async def commit_all(self, batch: list[Commit]) -> list[BaseException | None]:
        trees = {commit.tree for commit in batch}
        assert not trees & set(+self._under_way), "two batches with commits of the same tree"
        self._under_way.update(trees)
        self._batches += 1
        self.sizes.append(len(batch))
        self.most_at_once = max(self.most_at_once, self._batches)
        for _ in range(self._turns.randrange(4)):
            await asyncio.sleep(0)
        self.done += batch
        self._under_way.subtract(trees)
        self._batches -= 1
        return [CommitConflict("row") if commit.delete_blobs else None for commit in batch]


def commit_of(tree: int, number: int) -> Commit:
    return Commit(b"%d" % tree, delete_records=[(b"%d" % number, b"")])


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=120), st.integers())
def test_every_commit_is_carried_out_once_and_in_its_tree_s_order(asked, seed):
    async def use() -> Slow:
        backend = Slow(seed)
        bridge = AsyncBridge(backend)
        waiting: list[Any] = []
        for number, (tree, pause) in enumerate(asked):
            waiting.append(bridge.commit(commit_of(tree, number)))
            if pause:
                await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        return backend

    backend = asyncio.run(use())
    given_in_order = [commit_of(tree, number) for number, (tree, _) in enumerate(asked)]
    for tree in {commit.tree for commit in given_in_order}:
        assert [one for one in backend.done if one.tree == tree] == [one for one in given_in_order if one.tree == tree]
    assert len(backend.done) == len(asked)
    assert backend.most_at_once <= BATCHES_AT_ONCE


def test_many_that_come_at_once_go_in_two_batches():
    async def use() -> list[int]:
        backend = Slow(1)
        bridge = AsyncBridge(backend)
        await asyncio.gather(*(bridge.commit(commit_of(tree, 0)) for tree in range(2 * WORTH_HALVING)))
        return backend.sizes

    assert asyncio.run(use()) == [WORTH_HALVING, WORTH_HALVING]


class TestWhoIsAlone:
    """Carries out its commit by itself, and is treated like all others as soon as it is not alone."""

    def test_makes_no_task(self):
        async def use() -> list[int]:
            bridge = AsyncBridge(Slow(1))
            found = []
            for number in range(4):
                tasks = len(asyncio.all_tasks())
                outcome = bridge.commit(commit_of(1, number))
                found.append(len(asyncio.all_tasks()) - tasks)
                await outcome
            return found

        assert asyncio.run(use()) == [1, 0, 0, 0]

    def test_hears_what_was_refused_and_goes_on(self):
        async def use() -> list[Commit]:
            backend = Slow(1)
            bridge = AsyncBridge(backend)
            await bridge.commit(commit_of(1, 0))
            with pytest.raises(CommitConflict):
                await bridge.commit(Commit(b"1", delete_blobs={b"x": 1}))
            await bridge.commit(commit_of(1, 1))
            assert bridge.committed == 3
            return backend.done

        assert len(asyncio.run(use())) == 3

    def test_a_commit_that_nobody_awaits_is_carried_out(self):
        async def use() -> list[Commit]:
            backend = Slow(1)
            bridge = AsyncBridge(backend)
            await bridge.commit(commit_of(1, 0))
            forgotten = bridge.commit(commit_of(1, 1))
            await bridge.commit(commit_of(1, 2))
            await forgotten
            await bridge.commit(commit_of(1, 3))
            late = bridge.commit(commit_of(1, 4))
            for _ in range(9):
                await asyncio.sleep(0)
            assert backend.done[-1] == commit_of(1, 4)
            await late
            return backend.done

        assert asyncio.run(use()) == [commit_of(1, number) for number in range(5)]

    def test_what_comes_meanwhile_waits_only_for_its_own_tree(self):
        async def use() -> list[Commit]:
            backend = Held()
            bridge = AsyncBridge(backend)
            await bridge.commit(commit_of(1, 0))
            backend.held.clear()
            alone = asyncio.ensure_future(committed(bridge, commit_of(1, 1)))
            await backend.began.wait()
            behind = bridge.commit(commit_of(1, 2))
            await bridge.commit(commit_of(2, 0))
            backend.held.set()
            await asyncio.gather(alone, behind)
            return backend.done

        done = asyncio.run(use())
        assert done == [commit_of(1, 0), commit_of(2, 0), commit_of(1, 1), commit_of(1, 2)]

    def test_one_that_is_cancelled_leaves_the_lane_to_others(self):
        async def use() -> list[Commit]:
            backend = Held()
            bridge = AsyncBridge(backend)
            await bridge.commit(commit_of(1, 0))
            backend.held.clear()
            alone = asyncio.ensure_future(committed(bridge, commit_of(1, 1)))
            await backend.began.wait()
            behind = bridge.commit(commit_of(1, 2))
            alone.cancel()
            backend.held.set()
            await behind
            await bridge.commit(commit_of(1, 3))
            return backend.done

        assert asyncio.run(use()) == [commit_of(1, 0), commit_of(1, 2), commit_of(1, 3)]


async def committed(bridge: AsyncBridge, commit: Commit) -> None:
    await bridge.commit(commit)


class Held:
    """Holds commits of the first tree, whose number is 1, until it is told to go on."""

    def __init__(self) -> None:
        self.capabilities = Capabilities("held", awaitable=True)
        self.done: list[Commit] = []
        self.held = asyncio.Event()
        self.held.set()
        self.began = asyncio.Event()

    async def commit_all(self, batch: list[Commit]) -> list[BaseException | None]:
        if batch[0] == commit_of(1, 1):
            self.began.set()
            await self.held.wait()
        self.done += batch
        return [None] * len(batch)


def test_a_refused_commit_is_the_caller_s_alone_and_the_lane_goes_on():
    async def use() -> None:
        bridge = AsyncBridge(Slow(1))
        refused = bridge.commit(Commit(b"t", delete_blobs={b"x": 1}))
        fine = bridge.commit(commit_of(2, 0))
        with pytest.raises(CommitConflict):
            await refused
        await fine
        await bridge.commit(commit_of(3, 0))

    asyncio.run(use())
