"""The schema in the database: created, upgraded, or left alone if a newer holdfast made it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from psycopg import sql

from holdfast.backends.postgres.commit import lock_number
from holdfast.backends.postgres.connection_port import PostgresConnection
from holdfast.errors import NewerVersionError, StoreError

MIGRATIONS = Path(__file__).with_name("migrations")
SCHEMA = 7


def quote_name(schema: str) -> str:
    """Return the schema's name as an SQL identifier, with any characters."""
    return sql.Identifier(schema).as_string(None)


async def prepare(connection: PostgresConnection, schema: str, where: str, *, make: bool) -> None:
    """Create or upgrade the schema to this version. Safe when many do it at once.

    Without `make`, a missing schema is not created.
    """
    if await _version(connection, schema) == SCHEMA and await _positions_go_on(connection, schema):
        return
    async with _transaction(connection):
        # The lock is the transaction's own: behind pgbouncer a session lock might never be released.
        await connection.fetch(b"SELECT pg_advisory_xact_lock($1)", (lock_number(b"schema", schema.encode()),))
        version = await _version(connection, schema)
        if version > SCHEMA:
            raise NewerVersionError(
                f"the store {where} has schema {version}, and this holdfast knows {SCHEMA}: it was made by a newer "
                "holdfast. Upgrade to open it; nothing was changed"
            )
        if version == 0 and not make:
            raise StoreError(f"there is no store at {where}: the first client that saves makes it")
        if version == 0:
            await _create_schema(connection, schema)
        for number in range(version + 1, SCHEMA + 1):
            await _migrate(connection, schema, number)
        if not await _positions_go_on(connection, schema):
            await _move_positions(connection, schema)


@asynccontextmanager
async def _transaction(connection: PostgresConnection) -> AsyncIterator[None]:
    """Run a block in a READ COMMITTED transaction: reads after the lock see the state of then.

    A block that raises leaves a connection that is not idle. It is closed, and the transaction is
    rolled back with it.
    """
    await connection.run(b"BEGIN ISOLATION LEVEL READ COMMITTED")
    yield
    await connection.run(b"COMMIT")


async def _version(connection: PostgresConnection, schema: str) -> int:
    """Return the version of the schema, 0 if there is none."""
    # Read as a table: `to_regclass` would use a cache that lacks what others have just created.
    found = await connection.fetch(
        b"SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        b"WHERE nspname = $1 AND relname = 'store'",
        (schema,),
    )
    if not found:
        return 0
    rows = await connection.fetch(f"SELECT version FROM {quote_name(schema)}.store".encode())
    return rows[0][0] if rows else 0


async def _create_schema(connection: PostgresConnection, schema: str) -> None:
    """Create the schema itself, unless a role with more rights has created it for us."""
    if not await connection.fetch(b"SELECT 1 FROM pg_namespace WHERE nspname = $1", (schema,)):
        await connection.run(f"CREATE SCHEMA {quote_name(schema)}".encode())


async def _migrate(connection: PostgresConnection, schema: str, number: int) -> None:
    script = await connection.run_in_thread(partial(_script, number))  # reading a file blocks
    await connection.run(script.replace("{schema}", quote_name(schema)).encode())
    if number == 1:
        await connection.run(
            f"INSERT INTO {quote_name(schema)}.store (version, base_position, base_transaction) "
            "VALUES (1, 0, pg_current_xact_id()::text::bigint - 1)".encode()
        )
    else:
        await connection.run(f"UPDATE {quote_name(schema)}.store SET version = {number}".encode())


def _script(number: int) -> str:
    return next(MIGRATIONS.glob(f"{number:03}_*.sql")).read_text(encoding="utf-8")


async def _positions_go_on(connection: PostgresConnection, schema: str) -> bool:
    """Return whether the next record comes after all existing ones.

    It would not after a dump was loaded into another server, whose transactions have lower numbers.
    """
    rows = await connection.fetch(
        f"SELECT base_position + ((pg_snapshot_xmax(pg_current_snapshot())::text::bigint - base_transaction) << 20) "
        f"> {_highest(schema)} FROM {quote_name(schema)}.store".encode()
    )
    return bool(rows and rows[0][0])


async def _move_positions(connection: PostgresConnection, schema: str) -> None:
    await connection.run(
        f"UPDATE {quote_name(schema)}.store SET base_position = {_highest(schema)} + 1, "
        "base_transaction = pg_current_xact_id()::text::bigint - 1".encode()
    )


def _highest(schema: str) -> str:
    return (
        f"greatest(coalesce((SELECT max(position) FROM {quote_name(schema)}.record), 0), "
        f"coalesce((SELECT max(position) FROM {quote_name(schema)}.deleted), 0))"
    )
