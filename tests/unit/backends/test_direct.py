"""Direct: what waits goes together, two batches at most, and a tree's commits in the order in which they were given."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.direct import BATCHES_AT_ONCE, WORTH_HALVING, Direct
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
        bridge = Direct(backend)
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
        bridge = Direct(backend)
        await asyncio.gather(*(bridge.commit(commit_of(tree, 0)) for tree in range(2 * WORTH_HALVING)))
        return backend.sizes

    assert asyncio.run(use()) == [WORTH_HALVING, WORTH_HALVING]


def test_a_refused_commit_is_the_caller_s_alone_and_the_lane_goes_on():
    async def use() -> None:
        bridge = Direct(Slow(1))
        refused = bridge.commit(Commit(b"t", delete_blobs={b"x": 1}))
        fine = bridge.commit(commit_of(2, 0))
        with pytest.raises(CommitConflict):
            await refused
        await fine
        await bridge.commit(commit_of(3, 0))

    asyncio.run(use())
