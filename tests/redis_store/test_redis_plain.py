"""Plain commits go a way of their own on the server: it decides as the general way does, and leaves the same behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from holdfast.backends.plain_commits import is_plain
from holdfast.backends.port import Commit, CommitConflict, RowKey, RowWrite, RunWrite, Span
from holdfast.backends.redis import open_redis, plain
from holdfast.errors import StoreError
from holdfast.testing.harness import OTHER_TREE, TREE, record, tree_id
from servers.prefixes import delete_prefixes, prefix_name

HEAD = RowKey("head", b"one\x00\xff", TREE)
OTHER_HEAD = RowKey("head", b"two", OTHER_TREE)


def run(log: int, first: int, data: bytes = b"run") -> RunWrite:
    return RunWrite(log, first, 2, data, first)


START = [
    Commit(TREE, record(1, session=b"one"), rows=[RowWrite(HEAD, b"1")], runs=[run(5, 0)]),
    Commit(OTHER_TREE, record(2, session=b"two", tree=OTHER_TREE), rows=[RowWrite(OTHER_HEAD, b"1")]),
]
GOOD = Commit(
    TREE,
    record(3, session=b"one", data=b"any \0 bytes: 7:"),
    rows=[RowWrite(HEAD, b"2", 1, b"1")],
    runs=[run(5, 2), run(6, 0)],
)
NEIGHBOUR = Commit(OTHER_TREE, record(4, session=b"two", tree=OTHER_TREE), rows=[RowWrite(OTHER_HEAD, b"2", 1)])
FOLLOWER = Commit(TREE, record(5, session=b"one"), rows=[RowWrite(HEAD, b"3", 2, b"2")], runs=[run(5, 4)])
CASES = {
    "all hold": (GOOD, None),
    "the row's version": (replace(GOOD, rows=[RowWrite(HEAD, b"2", 7, b"1")]), ("row", HEAD)),
    "the row's version, whatever its value": (replace(GOOD, rows=[RowWrite(HEAD, b"2", 11)]), ("row", HEAD)),
    "the row's value": (replace(GOOD, rows=[RowWrite(HEAD, b"2", 1, b"")]), ("row", HEAD)),
    "no such row": (replace(GOOD, rows=[RowWrite(HEAD._replace(key=b"no"), b"2", 1)]), ("row", HEAD._replace(key=b"no"))),
    "the first run's tail": (replace(GOOD, runs=[run(5, 3), run(6, 0)]), ("run", 5)),
    "the second run's tail": (replace(GOOD, runs=[run(5, 2), run(6, 1)]), ("run", 6)),
    "the id": (replace(GOOD, record=GOOD.record._replace(id=START[0].record.id)), ("record", START[0].record.id)),
    "the number": (replace(GOOD, record=GOOD.record._replace(sequence=1)), ("record", GOOD.record.id)),
    "a new session": (replace(GOOD, record=GOOD.record._replace(session=b"new")), None),
    "no run": (replace(GOOD, runs=[]), None),
}  # fmt: skip


async def carried_out(url: str, prefix: str, batch: list[Commit]) -> tuple[list[object], list[object]]:
    """The outcomes of a batch, and what is there afterwards."""
    backend = open_redis(url, prefix=prefix)
    try:
        assert await backend.commit_all(START) == [None, None]
        outcomes = [
            (outcome.kind, outcome.detail) if isinstance(outcome, CommitConflict) else outcome
            for outcome in await backend.commit_all(batch)
        ]
        left = [
            await backend.page_records(None, 99),
            [change.record for change in await backend.changes(0, 99)],
            await backend.session_records(b"one"),
            await backend.runs([Span(5, 0, 9), Span(6, 0, 9)]),
            await backend.page_runs(None, 99),
            await backend.scan("head"),
            await backend.scan("head", tree=TREE),
        ]
    finally:
        await backend.close()
    return outcomes, left


@pytest.mark.servers
@pytest.mark.parametrize("case", CASES)
def test_both_ways_decide_alike_and_leave_the_same_behind(case, redis_url, tmp_path, monkeypatch):
    commit, expected = CASES[case]
    assert is_plain(commit)
    assert is_plain(NEIGHBOUR)
    found = []
    for way in ("plain", "general"):
        if way == "general":
            monkeypatch.setattr(plain, "is_plain", lambda _: False)
        found.append(asyncio.run(carried_out(redis_url, prefix_name(tmp_path / way), [commit, NEIGHBOUR])))
    delete_prefixes(redis_url)
    assert found[0] == found[1]
    assert found[0][0] == [expected, None]


@pytest.mark.servers
def test_what_follows_another_commit_of_its_batch_sees_it(redis_url, tmp_path):
    outcomes, left = asyncio.run(carried_out(redis_url, prefix_name(tmp_path), [GOOD, NEIGHBOUR, FOLLOWER]))
    delete_prefixes(redis_url)
    assert outcomes == [None, None, None]
    assert [found.sequence for found in left[2]] == [5, 3, 1]


@pytest.mark.servers
def test_replicas_that_do_not_confirm_are_told_of_each_commit(redis_url, tmp_path):
    """The server has no replica: what was carried out is not sure, what was refused is refused all the same."""

    async def story() -> list[BaseException | None]:
        backend = open_redis(redis_url, prefix=prefix_name(tmp_path))
        unsure = open_redis(redis_url, prefix=prefix_name(tmp_path), durability="replicated", wait_ms=1)
        try:
            assert await backend.commit_all(START) == [None, None]
            return await unsure.commit_all([GOOD, replace(NEIGHBOUR, rows=[RowWrite(OTHER_HEAD, b"2", 7)])])
        finally:
            await backend.close()
            await unsure.close()

    first, second = asyncio.run(story())
    delete_prefixes(redis_url)
    assert isinstance(first, StoreError)
    assert "outcome is not known" in str(first)
    assert isinstance(second, CommitConflict)


class TestGroups:
    def test_commits_with_nothing_in_common_go_together(self):
        assert list(plain.groups([GOOD, NEIGHBOUR])) == [(True, [GOOD, NEIGHBOUR])]

    @pytest.mark.parametrize(
        "second",
        [
            FOLLOWER,
            replace(NEIGHBOUR, record=NEIGHBOUR.record._replace(id=GOOD.record.id)),
            replace(NEIGHBOUR, record=NEIGHBOUR.record._replace(session=GOOD.record.session)),
            replace(NEIGHBOUR, runs=[run(6, 2)]),
            replace(NEIGHBOUR, rows=[RowWrite(OTHER_HEAD._replace(space="pin"), b"2", 1)]),
        ],
    )
    def test_what_shares_something_with_one_before_goes_by_itself(self, second):
        assert is_plain(second)
        assert list(plain.groups([GOOD, second])) == [(True, [GOOD]), (True, [second])]

    def test_order_is_kept_around_one_that_is_not_plain(self):
        other = replace(NEIGHBOUR, blobs={b"h" * 32: b"blob"})
        assert list(plain.groups([GOOD, other, FOLLOWER])) == [(True, [GOOD]), (False, [other]), (True, [FOLLOWER])]

    def test_a_row_of_another_tree_is_not_plain(self):
        stranger = replace(GOOD, rows=[RowWrite(OTHER_HEAD, b"2", 1, b"1")])
        assert list(plain.groups([stranger])) == [(False, [stranger])]

    def test_groups_are_not_endless(self):
        trees = [tree_id(number) for number in range(10, 10 + 3 * plain.MOST_TOGETHER)]
        batch = [
            Commit(tree, record(1, session=tree, tree=tree), rows=[RowWrite(RowKey("head", b"s", tree), b"2", 1)])
            for tree in trees
        ]
        found = [group for _, group in plain.groups(batch)]
        assert [len(group) for group in found] == [plain.MOST_TOGETHER] * 3
        assert [commit for group in found for commit in group] == batch
