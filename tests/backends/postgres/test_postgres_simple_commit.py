"""Simple commits: the functions in the database decide as the general way does."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from open_transaction import connected, schema_of

from holdfast import SyncClient
from holdfast.backends.port import STORE, Commit, CommitConflict, Labels, RowKey, RowWrite, SegmentWrite, Span
from holdfast.backends.postgres import backend as backend_module
from holdfast.backends.postgres import open_url
from holdfast.backends.postgres.commit import GeneralCommit
from holdfast.backends.postgres.schema import SCHEMA, quote_name
from holdfast.backends.postgres.simple_commit import BatchSave, MessageSave, SimpleBatch, SingleSave, way_of
from holdfast.backends.simple_commit import is_plain
from holdfast.testing.harness import OTHER_TREE, TREE, record

pytestmark = pytest.mark.servers

HEAD = RowKey("head", b"one", TREE)
OTHER_HEAD = RowKey("head", b"two", OTHER_TREE)
BESIDE, THERE = RowKey("index", b"new", TREE), RowKey("index", b"there", TREE)
LONG = RowKey("index", b"k" * 3000, TREE)
FEED = b"topic \x00\xff"
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
        [change.record for change in await backend.changes(0, 99, FEED)],
        await backend.segments([Span(5, 0, 9), Span(6, 0, 9)]),
        await backend.scan("head"),
        await backend.scan("index"),
    ]
    await backend.close()
    return outcomes, left


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("neighbours", [[], [NEIGHBOUR]], ids=["alone", "with a neighbour"])
def test_all_ways_decide_alike_and_leave_the_same_behind(case, neighbours, postgres_dsn, tmp_path, monkeypatch):
    commit, expected = CASES[case]
    batch = [commit, *neighbours]
    assert all(map(is_plain, batch))
    assert isinstance(way_of(batch, [1] * len(batch)), BatchSave if neighbours else SingleSave)
    outcomes = outcomes_of_all_ways(batch, postgres_dsn, tmp_path, monkeypatch)
    assert outcomes == [expected, *(None for _ in neighbours)]


def outcomes_of_all_ways(batch, postgres_dsn, tmp_path, monkeypatch, ways=("hopeful", "plain", "general")):
    """Carries a batch out by the hopeful way, the plain one and the general one, and compares what
    they leave behind."""
    from servers.schemas import drop_schemas, schema_name

    found = []
    for way in ways:
        if way == "plain":
            monkeypatch.setattr(backend_module, "way_of", lambda commits, _: SimpleBatch(commits))
        if way == "general":
            monkeypatch.setattr(backend_module, "is_plain", lambda _: False)
        found.append(asyncio.run(carried_out(f"{postgres_dsn}?schema={schema_name(tmp_path / way)}", batch)))
    drop_schemas(postgres_dsn)
    assert all(each == found[0] for each in found)
    return found[0][0]


NEXT = replace(GOOD, record=record(5, session=b"one"), rows=[RowWrite(HEAD, b"3", 2, b"2")], segments=[run(5, 4)])
FORK = Commit(TREE, record(6, session=b"fork"), rows=[RowWrite(THERE, b"2", 1)], segments=[run(5, 2)])
BATCHES = {
    "one row twice, in order": ([GOOD, NEXT], SimpleBatch, [None, None]),
    "one row twice, the other way round": ([NEXT, GOOD], SimpleBatch, [("segment", 5), None]),
    "the end of one log twice": ([GOOD, FORK], BatchSave, [None, ("segment", 5)]),
    "one id twice": (
        [GOOD, replace(NEIGHBOUR, record=NEIGHBOUR.record._replace(id=GOOD.record.id))], BatchSave,
        [None, ("record", GOOD.record.id)],
    ),
    "one row beside twice": (
        [replace(one, rows=[*one.rows, RowWrite(BESIDE, value)]) for one, value in ((GOOD, b"1"), (NEIGHBOUR, b"2"))],
        BatchSave,
        [None, None],
    ),
    "a row beside that belongs to the store": (
        [replace(GOOD, rows=[*GOOD.rows, RowWrite(BESIDE._replace(tree=STORE), b"new")])], BatchSave, [None],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BATCHES)
def test_commits_that_are_about_the_same_are_decided_one_after_the_other(case, postgres_dsn, tmp_path, monkeypatch):
    batch, way, expected = BATCHES[case]
    assert all(map(is_plain, batch))
    assert isinstance(way_of(batch, [1, 2]), way)
    assert outcomes_of_all_ways(batch, postgres_dsn, tmp_path, monkeypatch) == expected


MESSAGE = record(7, b"message", session=b"one")._replace(feed=FEED, labels=LABELS, expires_at_us=77)
PUBLISHED = replace(GOOD, more_records=[MESSAGE])
LANE = replace(GOOD, record=MESSAGE, segments=[])
LANE_NEXT = replace(LANE, record=record(8, session=b"one")._replace(feed=FEED), rows=[RowWrite(HEAD, b"3", 2, b"2")])
LANE_LAST = replace(LANE_NEXT, record=record(9, session=b"one"), rows=[RowWrite(HEAD, b"4", 3), RowWrite(BESIDE, b"!")])
WITH_MESSAGES = {
    "a message by itself": ([LANE], None),
    "a message with a save": ([PUBLISHED], None),
    "several messages with a save": (
        [replace(PUBLISHED, more_records=[MESSAGE, LANE_NEXT.record, record(9, session=b"one")])], None,
    ),
    "a message beside a save of another tree": ([LANE, NEIGHBOUR], None),
    "the row's version": ([replace(LANE, rows=[RowWrite(HEAD, b"2", 7)]), NEIGHBOUR], ("row", HEAD)),
    "the row's value": ([replace(PUBLISHED, rows=[RowWrite(HEAD, b"2", 1, b"?")]), NEIGHBOUR], ("row", HEAD)),
    "the run's tail": ([replace(PUBLISHED, segments=[run(5, 3)]), NEIGHBOUR], ("segment", 5)),
    "the message's id": (
        [replace(PUBLISHED, more_records=[MESSAGE._replace(id=START[0].record.id)]), NEIGHBOUR],
        ("record", START[0].record.id),
    ),
    "the message's number": (
        [replace(PUBLISHED, more_records=[MESSAGE._replace(sequence=1)]), NEIGHBOUR], ("record", MESSAGE.id),
    ),
    "a new session": ([replace(LANE, record=MESSAGE._replace(session=b"new")), NEIGHBOUR], None),
}  # fmt: skip


@pytest.mark.parametrize("case", WITH_MESSAGES)
def test_commits_with_messages_are_decided_alike_by_both_ways(case, postgres_dsn, tmp_path, monkeypatch):
    batch, expected = WITH_MESSAGES[case]
    assert all(map(is_plain, batch))
    assert isinstance(way_of(batch, [1, 2]), MessageSave)
    outcomes = outcomes_of_all_ways(batch, postgres_dsn, tmp_path, monkeypatch, ("hopeful", "general"))
    assert outcomes == [expected, *(None for _ in batch[1:])]


LANE_NEXT_WITH_RUN = replace(NEXT, record=NEXT.record._replace(feed=FEED))
OF_ONE_SESSION = {
    "in order": ([LANE, NEIGHBOUR, LANE_NEXT, LANE_LAST], MessageSave, [None] * 4),
    "with a log that both append to": ([PUBLISHED, LANE_NEXT_WITH_RUN], MessageSave, [None, None]),
    "upon a row that is not as expected": (
        [replace(LANE, rows=[RowWrite(HEAD, b"2", 7)]), replace(LANE_NEXT, rows=[RowWrite(HEAD, b"3", 8)])],
        MessageSave,
        [("row", HEAD), ("row", HEAD)],
    ),
    "the second one first": ([LANE_NEXT, LANE], GeneralCommit, [("row", HEAD), None]),
    "both upon the same": ([LANE, replace(LANE_NEXT, rows=LANE.rows)], GeneralCommit, [None, ("row", HEAD)]),
    "upon another value": (
        [LANE, replace(LANE_NEXT, rows=[RowWrite(HEAD, b"3", 2, b"?")])], GeneralCommit, [None, ("row", HEAD)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_ONE_SESSION)
def test_messages_of_one_session_are_decided_one_after_the_other(case, postgres_dsn, tmp_path, monkeypatch):
    batch, way, expected = OF_ONE_SESSION[case]
    assert all(map(is_plain, batch))
    assert isinstance(way_of(batch, [1, 2]), way)
    assert outcomes_of_all_ways(batch, postgres_dsn, tmp_path, monkeypatch, ("hopeful", "general")) == expected


@pytest.mark.parametrize("batch", [[LANE], [PUBLISHED], [LANE, NEIGHBOUR, LANE_NEXT, LANE_LAST]])
def test_messages_take_one_call_of_one_function(batch, postgres_url):
    """Nothing is asked again, and nothing goes the general way."""

    async def story() -> list[str]:
        backend = open_url(postgres_url)
        assert await backend.commit_all(START) == [None, None]
        called: list[str] = []
        statement = backend._statement
        backend._statement = lambda function: called.append(function.name) or statement(function)
        assert await backend.commit_all(batch) == [None] * len(batch)
        await backend.close()
        return called

    assert asyncio.run(story()) == ["save_messages"]


def test_what_was_hoped_for_in_vain_leaves_its_connection_usable(postgres_url):
    async def story() -> None:
        backend = open_url(postgres_url, max_connections=1)
        assert await backend.commit_all(START) == [None, None]
        [conflict] = await backend.commit_all([replace(GOOD, segments=[run(5, 3)])])
        assert isinstance(conflict, CommitConflict)
        assert conflict.kind == "segment"
        assert await backend.commit_all([GOOD]) == [None]
        await backend.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "other",
    [
        replace(GOOD, require=[(b"id", b"x")]),
        replace(GOOD, blobs={b"h" * 32: b"blob"}),
        replace(GOOD, record=None),
        replace(GOOD, more_records=[START[0].record._replace(replaces=b"record 1")]),
        replace(GOOD, segments=[SegmentWrite(5, 0, 4, b"sealed", 2)]),
        replace(GOOD, segments=[run(5, 2), run(5, 4)]),
        replace(GOOD, rows=[RowWrite(HEAD, None, 1)]),
        replace(GOOD, rows=[RowWrite(HEAD, b"2")]),
        replace(GOOD, rows=[*GOOD.rows, *NEIGHBOUR.rows]),
        replace(GOOD, rows=[*GOOD.rows, RowWrite(BESIDE, b"new", 0)]),
        replace(GOOD, rows=[*GOOD.rows, RowWrite(BESIDE, None)]),
        replace(GOOD, rows=[*GOOD.rows, RowWrite(BESIDE, b"new", was=b"old")]),
        replace(GOOD, rows=[*GOOD.rows, RowWrite(HEAD, b"3")]),
        replace(GOOD, rows=[*GOOD.rows, RowWrite(BESIDE, b"1"), RowWrite(THERE, b"2")]),
    ],
)
def test_what_is_more_than_that_is_not_plain(other):
    assert not is_plain(other)


def test_a_store_of_the_first_schema_is_brought_up_to_date(postgres_url):
    with SyncClient.open(postgres_url) as client:
        first = client.save("a", session_id="s", execution_state={"n": 1})
    schema = quote_name(schema_of(postgres_url))
    with connected(postgres_url) as connection:
        connection.execute(
            f"DROP FUNCTION {schema}.save_all, {schema}.save_batch, {schema}.save_one, {schema}.save_many, "
            f"{schema}.save_messages".encode()
        )
        connection.execute(f"DROP FUNCTION {schema}.carry_out_with_feeds".encode())
        connection.execute(f"DROP VIEW {schema}.feed".encode())
        connection.execute(f"ALTER TABLE {schema}.record DROP COLUMN feed".encode())
        connection.execute(f"DROP INDEX {schema}.record_by_ending, {schema}.rows_of_tree".encode())
        connection.execute(f"CREATE INDEX rows_of_tree ON {schema}.rows (tree, space)".encode())
        connection.execute(f"UPDATE {schema}.store SET version = 1".encode())
    with SyncClient.open(postgres_url) as client:
        second = client.save("a", session_id="s", execution_state={"n": 2})
        third = client.save("a", session_id="s", execution_state={"n": 3})
        assert [one.checkpoint_id for one in client.timeline("s", agent_id="a")] == [third, second, first]
        client.publish("news", 1)
        assert [one.value for one in client.messages("news")] == [1]
    with connected(postgres_url) as connection:
        assert connection.execute(f"SELECT version FROM {schema}.store".encode()).fetchone() == (SCHEMA,)
