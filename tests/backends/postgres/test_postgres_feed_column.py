"""A store whose feeds were a table: it is brought up to date, while programs use it that opened it before."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from open_transaction import OpenTransaction, connected, schema_of

from holdfast.backends.port import Commit
from holdfast.backends.postgres import open_url
from holdfast.backends.postgres.binary_arrays import bytes_array
from holdfast.backends.postgres.commit import GeneralCommit, batches
from holdfast.backends.postgres.schema import MIGRATIONS, SCHEMA, quote_name
from holdfast.testing.harness import OTHER_TREE, TREE, record, record_id

pytestmark = pytest.mark.servers
FEED, OTHER = b"drafts", b"drafts \x00\xff"
WITH_A_TABLE = 6


def message(number: int, feed: bytes | None = FEED, tree: bytes = TREE) -> Commit:
    return Commit(tree, record(number, session=b"s" + tree, tree=tree)._replace(feed=feed))


class OlderProgram:
    """A program that knows schema 6: how it makes a store, writes to it, and reads a feed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._schema = quote_name(schema_of(url))
        self._connection = connected(url)
        self._connection.autocommit = True

    def make_store(self) -> None:
        self._connection.execute(f"CREATE SCHEMA {self._schema}".encode())
        for number in range(1, WITH_A_TABLE + 1):
            [script] = MIGRATIONS.glob(f"{number:03}_*.sql")
            self._connection.execute(script.read_text("utf-8").replace("{schema}", self._schema).encode())
        self._connection.execute(
            f"INSERT INTO {self._schema}.store (version, base_position, base_transaction) "
            f"VALUES ({WITH_A_TABLE}, 0, pg_current_xact_id()::text::bigint - 1)".encode()
        )

    def write(self, commit: Commit) -> Any:
        assert commit.record is not None
        [(_, locks)] = batches([commit], schema_of(self._url))
        program = GeneralCommit([replace(commit, record=commit.record._replace(feed=None))])
        values = program.function.adapt(program.arguments(locks, fast=False))
        call = "carry_out(%s, %s, %s, %s, %s)"
        if commit.record.feed is not None:
            values += [bytes_array([commit.record.id]), bytes_array([commit.record.feed])]
            call = "carry_out_with_feeds(%s, %s, %s, %s, %s, %s, %s)"
        found = self._connection.execute(f"SELECT {self._schema}.{call}".encode(), values).fetchone()
        assert found is not None
        return found[0]

    def feed(self, feed: bytes, after: int = 0) -> list[int]:
        """The query of schema 6, without what it joins."""
        found = self._connection.execute(
            f"SELECT position AS place FROM {self._schema}.feed WHERE feed = %s AND position > %s "
            f"AND position < (SELECT {self._schema}.decided_below()) ORDER BY position LIMIT 99".encode(),
            (feed, after),
        )
        return [position for (position,) in found]

    def version(self) -> Any:
        return self._connection.execute(f"SELECT version FROM {self._schema}.store".encode()).fetchone()


@pytest.fixture
def older(postgres_url):
    program = OlderProgram(postgres_url)
    program.make_store()
    yield program
    program._connection.close()


async def sequences(backend: Any, feed: bytes) -> list[int]:
    return [change.record.sequence for change in await backend.changes(0, 99, feed)]


def test_feeds_and_their_positions_are_kept(older, postgres_url):
    for number, feed in ((1, FEED), (2, OTHER), (3, None), (4, FEED)):
        older.write(message(number, feed))
    before = older.feed(FEED)

    async def story() -> None:
        backend = open_url(postgres_url)
        assert [change.position for change in await backend.changes(0, 99, FEED)] == before
        assert (await sequences(backend, FEED), await sequences(backend, OTHER)) == ([1, 4], [2])
        assert await backend.commit_all([message(5)]) == [None]
        assert await sequences(backend, FEED) == [1, 4, 5]
        delete = Commit(TREE, delete_records=[(record_id(4, TREE), b"record 4")])
        assert await backend.commit_all([delete]) == [None]
        assert await sequences(backend, FEED) == [1, 5]
        await backend.close()

    asyncio.run(story())
    assert older.version() == (SCHEMA,)


def test_a_program_that_opened_it_before_goes_on(older, postgres_url):
    older.write(message(1))

    async def story() -> None:
        backend = open_url(postgres_url)
        await backend.setup()
        assert older.write(message(2)) == [0]
        assert await backend.commit_all([message(3)]) == [None]
        assert older.write(message(4, None)) == [0]
        [taken] = older.write(message(4, OTHER))
        assert taken != 0
        [taken] = older.write(message(1, OTHER))
        assert taken != 0
        found = await backend.changes(0, 99, FEED)
        assert [change.record.sequence for change in found] == [1, 2, 3]
        assert older.feed(FEED) == [change.position for change in found]
        assert older.feed(FEED, found[0].position) == [change.position for change in found[1:]]
        assert older.feed(OTHER) == await sequences(backend, OTHER) == []
        await backend.close()

    asyncio.run(story())


def test_publishers_to_one_topic_do_not_wait_for_each_other(postgres_url):
    async def story() -> None:
        backend = open_url(postgres_url)
        await backend.setup()
        late = OpenTransaction(postgres_url)
        late.write([message(1)])
        assert await asyncio.wait_for(backend.commit_all([message(2, tree=OTHER_TREE)]), 240) == [None]
        assert await sequences(backend, FEED) == []  # a reader would miss the one that is still to come
        late.commit()
        assert await sequences(backend, FEED) == [1, 2]
        await backend.close()

    asyncio.run(story())
