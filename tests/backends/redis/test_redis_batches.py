"""Commits that go to the server in one call: each is decided by itself, as the memory backend decides it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from servers.prefixes import delete_prefixes, prefix_name

from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.port import BlockingBackend, Commit, CommitConflict, RowKey, RowWrite, SegmentWrite, Span
from holdfast.backends.redis import commit as commits
from holdfast.backends.redis import open_redis
from holdfast.backends.redis.script_calls import Calls
from holdfast.errors import StoreError
from holdfast.testing.harness import OTHER_TREE, TREE, record, tree_id

pytestmark = pytest.mark.servers
HEAD = RowKey("head", b"one\x00\xff", TREE)
NO_ROW = HEAD._replace(key=b"no")
OTHER_HEAD = RowKey("head", b"two", OTHER_TREE)


def run(log: int, first: int, data: bytes = b"run") -> SegmentWrite:
    return SegmentWrite(log, first, 2, data, first)


START = [
    Commit(TREE, record(1, session=b"one"), rows=[RowWrite(HEAD, b"1")], segments=[run(5, 0)]),
    Commit(OTHER_TREE, record(2, session=b"two", tree=OTHER_TREE), rows=[RowWrite(OTHER_HEAD, b"1")]),
]
GOOD = Commit(
    TREE,
    record(3, session=b"one", data=b"any \0 bytes: 7:"),
    rows=[RowWrite(HEAD, b"2", 1, b"1")],
    segments=[run(5, 2), run(6, 0)],
)
NEIGHBOUR = Commit(OTHER_TREE, record(4, session=b"two", tree=OTHER_TREE), rows=[RowWrite(OTHER_HEAD, b"2", 1)])
FOLLOWER = Commit(TREE, record(5, session=b"one"), rows=[RowWrite(HEAD, b"3", 2, b"2")], segments=[run(5, 4)])
CASES = {
    "all hold": (GOOD, None),
    "the row's version": (replace(GOOD, rows=[RowWrite(HEAD, b"2", 7, b"1")]), ("row", HEAD)),
    "the row's version, whatever its value": (replace(GOOD, rows=[RowWrite(HEAD, b"2", 11)]), ("row", HEAD)),
    "the row's value": (replace(GOOD, rows=[RowWrite(HEAD, b"2", 1, b"")]), ("row", HEAD)),
    "no such row": (replace(GOOD, rows=[RowWrite(NO_ROW, b"2", 1)]), ("row", NO_ROW)),
    "the first run's tail": (replace(GOOD, segments=[run(5, 3), run(6, 0)]), ("segment", 5)),
    "the second run's tail": (replace(GOOD, segments=[run(5, 2), run(6, 1)]), ("segment", 6)),
    "the id": (replace(GOOD, record=GOOD.record._replace(id=START[0].record.id)), ("record", START[0].record.id)),
    "the number": (replace(GOOD, record=GOOD.record._replace(sequence=1)), ("record", GOOD.record.id)),
    "a new session": (replace(GOOD, record=GOOD.record._replace(session=b"new")), None),
    "no run": (replace(GOOD, segments=[]), None),
}  # fmt: skip


def carry_out(backend: BlockingBackend, batch: list[Commit]) -> tuple[list[object], list[object]]:
    """The outcomes of a batch, and what is there afterwards."""
    try:
        assert backend.commit_all(START) == [None, None]
        outcomes = [
            (outcome.kind, outcome.detail) if isinstance(outcome, CommitConflict) else outcome
            for outcome in backend.commit_all(batch)
        ]
        left = [
            backend.page_records(None, 99),
            [change.record for change in backend.changes(0, 99)],
            backend.session_records(b"one"),
            backend.segments([Span(5, 0, 9), Span(6, 0, 9)]),
            backend.page_segments(None, 99),
            backend.scan("head"),
            backend.scan("head", tree=TREE),
        ]
    finally:
        backend.close()
    return outcomes, left


@pytest.fixture
def prefix(redis_url: str, tmp_path: Path) -> Iterator[str]:
    yield prefix_name(tmp_path)
    delete_prefixes(redis_url)


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("case", CASES)
def test_each_is_decided_as_in_memory(case, shards, redis_url, prefix):
    commit, expected = CASES[case]
    found = carry_out(blocking(open_redis(redis_url, prefix=prefix, shards=shards)), [commit, NEIGHBOUR])
    assert found[0] == [expected, None]
    assert found == carry_out(MemoryBackend(), [commit, NEIGHBOUR])


@pytest.mark.parametrize("shards", [1, 4])
def test_what_follows_another_commit_of_its_batch_sees_it(redis_url, prefix, shards):
    outcomes, left = carry_out(
        blocking(open_redis(redis_url, prefix=prefix, shards=shards)), [GOOD, NEIGHBOUR, FOLLOWER]
    )
    assert outcomes == [None, None, None]
    assert [found.sequence for found in left[2]] == [5, 3, 1]


def test_replicas_that_do_not_confirm_are_told_of_each_commit(redis_url, prefix):
    """The server has no replica: what was carried out is not sure, what was refused is refused all the same."""

    async def story() -> list[BaseException | None]:
        backend = open_redis(redis_url, prefix=prefix)
        unsure = open_redis(redis_url, prefix=prefix, durability="replicated", wait_ms=1)
        try:
            assert await backend.commit_all(START) == [None, None]
            return await unsure.commit_all([GOOD, replace(NEIGHBOUR, rows=[RowWrite(OTHER_HEAD, b"2", 7)])])
        finally:
            await backend.close()
            await unsure.close()

    first, second = asyncio.run(story())
    assert isinstance(first, StoreError)
    assert "outcome is not known" in str(first)
    assert isinstance(second, CommitConflict)


def test_a_commit_that_the_server_refuses_does_not_stop_the_others(redis_url, prefix):
    """Another program has written the key that one of them needs."""
    with redis.Redis.from_url(redis_url) as server:
        server.set(f"{{{prefix}:0}}:runs:6", "of another program")
        (refused, neighbour), left = carry_out(blocking(open_redis(redis_url, prefix=prefix)), [GOOD, NEIGHBOUR])
    assert isinstance(refused, StoreError)
    assert "Nothing was changed" in str(refused)
    assert neighbour is None
    assert [found.sequence for found in left[2]] == [1]


def test_a_call_is_not_endless(redis_url, prefix, monkeypatch):
    """The server does nothing else while it carries one out."""
    sizes: list[int] = []
    carry_out = Calls.carry_out

    async def counted(self, calls, durability=None):
        sizes.extend(len(call.asked[0]) for call in calls if call.script.name == "commit")
        return await carry_out(self, calls, durability)

    monkeypatch.setattr(Calls, "carry_out", counted)
    trees = [tree_id(number) for number in range(10, 11 + 2 * commits.MOST_TOGETHER)]
    batch = [Commit(tree, record(1, session=tree, tree=tree)) for tree in trees]
    backend = blocking(open_redis(redis_url, prefix=prefix))
    assert backend.commit_all(batch) == [None] * len(batch)
    assert sizes == [commits.MOST_TOGETHER, commits.MOST_TOGETHER, 1]
    assert [change.record.id for change in backend.changes(0, 999)] == [commit.record.id for commit in batch]
    backend.close()
