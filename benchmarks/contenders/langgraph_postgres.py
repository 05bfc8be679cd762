"""LangGraph's PostgreSQL saver, driven directly, as its SQLite saver is beside: on one connection, and on a pool."""

from contextlib import AsyncExitStack
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from benchmarks.contenders.langgraph_sqlite import LanggraphSqlite
from benchmarks.contenders.on_server import OnPostgres

POOL = 8  # as many as holdfast opens at most


class LanggraphPostgres(OnPostgres, LanggraphSqlite):
    """On one connection, as its documentation shows it first."""

    key = "langgraph_postgres"
    title = "langgraph-postgres"

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        self._heads: dict[str, dict[str, Any]] = {}
        self._saver = await self._stack.enter_async_context(AsyncPostgresSaver.from_conn_string(self.server.dsn))
        await self._saver.setup()


class LanggraphPostgresPool(LanggraphPostgres):
    """On a pool, as its documentation advises for production."""

    key = "langgraph_postgres_pool"
    title = f"langgraph-postgres, pool of {POOL}"

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        self._heads: dict[str, dict[str, Any]] = {}
        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
            self.server.dsn, min_size=POOL, max_size=POOL, kwargs=settings, open=False
        )
        await self._stack.enter_async_context(pool)
        self._saver = AsyncPostgresSaver(pool)
        await self._saver.setup()
