"""Commits are prepared statements where that is safe: on connections of our own, and not behind a pooler."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit, RowKey, RowWrite
from holdfast.backends.postgres import open_url
from holdfast.backends.postgres.backend import PostgresBackend
from holdfast.testing.harness import TREE

pytestmark = pytest.mark.servers

ROW = RowKey("head", b"s", TREE)


async def commit(backend: PostgresBackend, times: int) -> None:
    """Each commit must follow the one before it: one that was lost, or carried out twice, would be found."""
    [row] = await backend.rows([ROW])
    version = row.version if row else 0
    for number in range(version, version + times):
        assert await backend.commit_all([Commit(TREE, rows=[RowWrite(ROW, b"%d" % number, number)])]) == [None]


async def prepared(backend: PostgresBackend) -> int:
    async with backend._connection() as connection:
        [[count]] = await connection.fetch(b"SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'holdfast%'")
        return int(count)


def told(url: str, story) -> None:
    """By an event loop, and by a thread without one."""

    async def run(backend: PostgresBackend) -> None:
        try:
            await story(backend)
        finally:
            await backend.close()

    asyncio.run(run(open_url(url, max_connections=1)))
    run_inline(run(open_url(url, max_connections=1).without_loop()))


def test_commits_that_follow_each_other_are_prepared_once(postgres_url):
    async def story(backend: PostgresBackend) -> None:
        await commit(backend, 1)
        assert await prepared(backend) == 0
        await commit(backend, 20)
        assert await prepared(backend) == 1

    told(postgres_url, story)


def test_a_statement_that_the_server_has_forgotten_is_done_without_and_once(postgres_url):
    async def story(backend: PostgresBackend) -> None:
        await commit(backend, 10)
        async with backend._connection() as connection:
            await connection.run(b"DEALLOCATE ALL")
        await commit(backend, 10)
        assert await prepared(backend) == 0

    told(postgres_url, story)


def test_nothing_is_prepared_behind_a_pooler(pgbouncer_dsn, postgres_url):
    async def story(backend: PostgresBackend) -> None:
        await commit(backend, 20)
        for _ in range(9):  # each time perhaps on another connection to the server
            assert await prepared(backend) == 0

    told(f"{pgbouncer_dsn}?{postgres_url.partition('?')[2]}", story)
