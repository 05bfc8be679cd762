"""Commits on PostgreSQL: every condition is decided in the database, alone and in a batch."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from open_transaction import connected, schema_of

from holdfast import SyncClient
from holdfast.backends.port import STORE, Commit, CommitConflict, Labels, RowKey, RowWrite, SegmentWrite, Span
from holdfast.backends.postgres import open_url
from holdfast.backends.postgres.schema import SCHEMA, quoted
from holdfast.testing.harness import OTHER_TREE, TREE, record

pytestmark = pytest.mark.servers

HEAD = RowKey("head", b"one", TREE)
OTHER_HEAD = RowKey("head", b"two", OTHER_TREE)
BESIDE, THERE = RowKey("index", b"new", TREE), RowKey("index", b"there", TREE)
LONG = RowKey("index", b"k" * 3000, TREE)
LABELS = Labels("agent \0 \ud800", "custom", 3, None, None, 17, "")


def run(log: int, first: int, data: bytes = b"run") -> SegmentWrite:
    return SegmentWrite(log, first, 2, data, first)


START = [
    Commit(TREE, record(1, session=b"one"), rows=[RowWrite(HEAD, b"1"), RowWrite(THERE, b"1")], segments=[run(5, 0)]),
    Commit(OTHER_TREE, record(2, session=b"two", tree=OTHER_TREE), rows=[RowWrite(OTHER_HEAD, b"1")]),
]
GOOD = Commit(
    TREE,
    record(3, session=b"one")._replace(labels=LABELS, expires_at_us=99),
    rows=[RowWrite(HEAD, b"2", 1, b"1")],
    segments=[run(5, 2), run(6, 0)],
)
NEIGHBOUR = Commit(OTHER_TREE, record(4, session=b"two", tree=OTHER_TREE), rows=[RowWrite(OTHER_HEAD, b"2", 1)])
CASES = {
    "all hold": (GOOD, None),
    "the row's version": (replace(GOOD, rows=[RowWrite(HEAD, b"2", 7, b"1")]), ("row", HEAD)),
    "the row's value": (replace(GOOD, rows=[RowWrite(HEAD, b"2", 1, b"?")]), ("row", HEAD)),
    "no such row": (replace(GOOD, rows=[RowWrite(HEAD._replace(key=b"no"), b"2", 1)]),
                    ("row", HEAD._replace(key=b"no"))),
    "the first run's tail": (replace(GOOD, segments=[run(5, 3), run(6, 0)]), ("segment", 5)),
    "the second run's tail": (replace(GOOD, segments=[run(5, 2), run(6, 1)]), ("segment", 6)),
    "the id": (replace(GOOD, record=GOOD.record._replace(id=START[0].record.id)), ("record", START[0].record.id)),
    "the number": (replace(GOOD, record=GOOD.record._replace(sequence=1)), ("record", GOOD.record.id)),
    "a new session": (replace(GOOD, record=GOOD.record._replace(session=b"new")), None),
    "no run": (replace(GOOD, segments=[]), None),
    "a row beside": (replace(GOOD, rows=[*GOOD.rows, RowWrite(BESIDE, b"new")]), None),
    "a row beside that is there": (replace(GOOD, rows=[*GOOD.rows, RowWrite(THERE, b"again")]), None),
    "a row beside with a long key": (replace(GOOD, rows=[*GOOD.rows, RowWrite(LONG, b"long")]), None),
    "a row beside one that is not as expected": (
        replace(GOOD, rows=[RowWrite(HEAD, b"2", 7), RowWrite(THERE, b"again")]), ("row", HEAD),
    ),
}  # fmt: skip


async def carried_out(url: str, batch: list[Commit]) -> tuple[list[object], list[object]]:
    """The outcomes of a batch, and what is there afterwards."""
    backend = open_url(url)
    assert await backend.commit_all(START) == [None, None]
    outcomes = [
        (outcome.kind, outcome.detail) if isinstance(outcome, CommitConflict) else outcome
        for outcome in await backend.commit_all(batch)
    ]
    left = [
        await backend.page_records(None, 99),
        [change.record for change in await backend.changes(0, 99)],
        await backend.segments([Span(5, 0, 9), Span(6, 0, 9)]),
        await backend.scan("head"),
        await backend.scan("index"),
    ]
    await backend.close()
    return outcomes, left


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("neighbours", [[], [NEIGHBOUR]], ids=["alone", "with a neighbour"])
def test_each_condition_decides_about_its_own_commit(case, neighbours, postgres_url):
    commit, expected = CASES[case]
    outcomes, left = asyncio.run(carried_out(postgres_url, [commit, *neighbours]))
    assert outcomes == [expected, *(None for _ in neighbours)]
    if expected is not None:  # a refused commit leaves nothing behind
        assert left == asyncio.run(carried_out(f"{postgres_url}_without", neighbours))[1]


NEXT = replace(GOOD, record=record(5, session=b"one"), rows=[RowWrite(HEAD, b"3", 2, b"2")], segments=[run(5, 4)])
FORK = Commit(TREE, record(6, session=b"fork"), rows=[RowWrite(THERE, b"2", 1)], segments=[run(5, 2)])
BATCHES = {
    "one row twice, in order": ([GOOD, NEXT], [None, None]),
    "one row twice, the other way round": ([NEXT, GOOD], [("segment", 5), None]),
    "the end of one log twice": ([GOOD, FORK], [None, ("segment", 5)]),
    "one id twice": (
        [GOOD, replace(NEIGHBOUR, record=NEIGHBOUR.record._replace(id=GOOD.record.id))],
        [None, ("record", GOOD.record.id)],
    ),
    "one row beside twice": (
        [replace(one, rows=[*one.rows, RowWrite(BESIDE, value)]) for one, value in ((GOOD, b"1"), (NEIGHBOUR, b"2"))],
        [None, None],
    ),
    "a row beside that belongs to the store": (
        [replace(GOOD, rows=[*GOOD.rows, RowWrite(BESIDE._replace(tree=STORE), b"new")])], [None],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BATCHES)
def test_commits_that_are_about_the_same_are_decided_one_after_the_other(case, postgres_url):
    batch, expected = BATCHES[case]
    assert asyncio.run(carried_out(postgres_url, batch))[0] == expected


def test_a_conflict_leaves_its_connection_usable(postgres_url):
    async def story() -> None:
        backend = open_url(postgres_url, max_connections=1)
        assert await backend.commit_all(START) == [None, None]
        [conflict] = await backend.commit_all([replace(GOOD, segments=[run(5, 3)])])
        assert isinstance(conflict, CommitConflict)
        assert conflict.kind == "segment"
        assert await backend.commit_all([GOOD]) == [None]
        await backend.close()

    asyncio.run(story())


def test_a_store_of_the_first_schema_is_brought_up_to_date(postgres_url):
    with SyncClient.open(postgres_url) as client:
        first = client.save("a", session_id="s", execution_state={"n": 1})
    schema = quoted(schema_of(postgres_url))
    with connected(postgres_url) as connection:
        for name in ("save_all", "save_batch", "save_one", "save_many"):  # functions of versions 2 to 4
            body = f"CREATE FUNCTION {schema}.{name}() RETURNS integer LANGUAGE sql AS 'SELECT 1'"
            connection.execute(body.encode())
        connection.execute(f"DROP INDEX {schema}.record_by_ending, {schema}.rows_of_tree".encode())
        connection.execute(f"CREATE INDEX rows_of_tree ON {schema}.rows (tree, space)".encode())
        connection.execute(f"UPDATE {schema}.store SET version = 1".encode())
    with SyncClient.open(postgres_url) as client:
        second = client.save("a", session_id="s", execution_state={"n": 2})
        third = client.save("a", session_id="s", execution_state={"n": 3})
        assert [one.checkpoint_id for one in client.timeline("s", agent_id="a")] == [third, second, first]
    with connected(postgres_url) as connection:
        assert connection.execute(f"SELECT version FROM {schema}.store".encode()).fetchone() == (SCHEMA,)
        functions = connection.execute(
            b"SELECT proname FROM pg_proc WHERE pronamespace = %s::text::regnamespace ORDER BY 1", (schema,)
        ).fetchall()
        assert functions == [("carry_out",), ("decided_below",)]
