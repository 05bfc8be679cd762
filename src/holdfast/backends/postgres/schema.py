"""The schema in the database: made, brought up to date, or left alone because a newer holdfast made it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from psycopg import IsolationLevel, sql

from holdfast.backends.postgres.commit import lock_number
from holdfast.backends.postgres.connection import Connection
from holdfast.errors import NewerVersionError, StoreError

MIGRATIONS = Path(__file__).with_name("migrations")
SCHEMA = 4


def quoted(schema: str) -> str:
    """The schema's name as an identifier in SQL, whatever is in it."""
    return sql.Identifier(schema).as_string(None)


async def prepare(connection: Connection, schema: str, where: str, *, make: bool) -> None:
    """Makes sure that the schema is there, of this version. Safe when many do it at once. Without `make`, none is made
    where there is none."""
    if await _version(connection, schema) == SCHEMA and await _positions_go_on(connection, schema):
        return
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)  # what is read after the lock is of then
    async with connection.transaction():
        # The lock is the transaction's own: behind pgbouncer a lock of the session might never be given back.
        await connection.execute("SELECT pg_advisory_xact_lock($1)", (lock_number(b"schema", schema.encode()),))
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


async def _version(connection: Connection, schema: str) -> int:
    """The version of the schema, 0 if there is none."""
    # Read as a table: `to_regclass` would look into a cache that does not know yet what others have just made.
    cursor = await connection.execute(
        "SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = $1 AND relname = 'store'",
        (schema,),
    )
    if not cursor.rowcount:
        return 0
    cursor = await connection.execute(f"SELECT version FROM {quoted(schema)}.store".encode())
    row = await cursor.fetchone()
    return row[0] if row else 0


async def _create_schema(connection: Connection, schema: str) -> None:
    """Makes the schema itself, unless somebody with more rights has made it for us."""
    cursor = await connection.execute("SELECT FROM pg_namespace WHERE nspname = $1", (schema,))
    if not cursor.rowcount:
        await connection.execute(f"CREATE SCHEMA {quoted(schema)}".encode())


async def _migrate(connection: Connection, schema: str, number: int) -> None:
    script = await asyncio.to_thread(_script, number)  # reading a file would block the loop
    await connection.execute(script.replace("{schema}", quoted(schema)).encode())
    if number == 1:
        await connection.execute(
            f"INSERT INTO {quoted(schema)}.store (version, base_position, base_transaction) "
            "VALUES (1, 0, pg_current_xact_id()::text::bigint - 1)".encode()
        )
    else:
        await connection.execute(f"UPDATE {quoted(schema)}.store SET version = {number}".encode())


def _script(number: int) -> str:
    return next(MIGRATIONS.glob(f"{number:03}_*.sql")).read_text(encoding="utf-8")


async def _positions_go_on(connection: Connection, schema: str) -> bool:
    """Whether the next record comes after all that there are. When a dump was loaded into another server, whose
    transactions have lower numbers, it would not."""
    cursor = await connection.execute(
        f"SELECT base_position + ((pg_snapshot_xmax(pg_current_snapshot())::text::bigint - base_transaction) << 20) "
        f"> {_highest(schema)} FROM {quoted(schema)}.store".encode()
    )
    row = await cursor.fetchone()
    return bool(row and row[0])


async def _move_positions(connection: Connection, schema: str) -> None:
    await connection.execute(
        f"UPDATE {quoted(schema)}.store SET base_position = {_highest(schema)} + 1, "
        "base_transaction = pg_current_xact_id()::text::bigint - 1".encode()
    )


def _highest(schema: str) -> str:
    return (
        f"greatest(coalesce((SELECT max(position) FROM {quoted(schema)}.record), 0), "
        f"coalesce((SELECT max(position) FROM {quoted(schema)}.deleted), 0))"
    )
