"""Queries over libpq itself, for what every save and restore asks: a fast path of ARCHITECTURE.md.

psycopg's cursors adapt every value and look up every type, and wait by adding and removing the
socket each time. Queries here use the binary format: bytes, whole numbers, arrays. Without
`USE_LIBPQ` the same queries go through psycopg's cursors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from psycopg import pq
from psycopg.errors import error_from_result

from holdfast.backends.postgres.binary_arrays import (
    BIGINT,
    BIGINTS,
    BYTEA,
    BYTEAS,
    ENCODED,
    TEXTS,
    BytesArray,
    IntsArray,
    TextArray,
)
from holdfast.backends.postgres.connection_port import PostgresConnection, raw_value

Value = BytesArray | IntsArray | TextArray

USE_LIBPQ = True
"""The switch. Saves take a quarter to half less time with it (`benchmarks/fast_paths.py`)."""

_INTEGER = 23
_OIDS: dict[type, int] = {BytesArray: BYTEAS, IntsArray: BIGINTS, TextArray: TEXTS}
_BIG, _INT = Struct(">q").unpack, Struct(">i").unpack
_PREPARED_AFTER = 4  # calls over one connection: a rarer caller would pay for it without a gain
_NO_SUCH_STATEMENT = "26000"
_TUPLES_OK, _COMMAND_OK, _BINARY = pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.Format.BINARY
WHO = b"SELECT pg_backend_pid()"


def _bigint(data: bytes) -> int:
    number: int = _BIG(data)[0]
    return number


def _integer(data: bytes) -> int:
    number: int = _INT(data)[0]
    return number


_LOADERS: dict[int, Callable[[bytes], Any]] = {BYTEA: bytes, BIGINT: _bigint, _INTEGER: _integer}


class FunctionCall:
    """A call of a database function that returns one value."""

    __slots__ = ("formats", "text", "types")

    def __init__(self, function: str, types: Sequence[int]) -> None:
        places = ", ".join(f"${number}" for number in range(1, len(types) + 1))
        self.text = f"SELECT {function}({places})".encode()
        self.types = types
        self.formats = [_BINARY] * len(types)

    def adapted(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the values as objects whose types psycopg knows (`binary_arrays.py`)."""
        return [
            None if value is None else ENCODED[type_](value) for type_, value in zip(self.types, values, strict=True)
        ]


async def ask(connection: PostgresConnection, statement: bytes, values: Sequence[Value]) -> list[tuple[Any, ...]]:
    """Return the rows of an answer; raise the errors of psycopg.

    The connection is this call's own meanwhile.
    """
    if not USE_LIBPQ:
        return await connection.fetch(statement, values)
    pgconn = connection.pgconn
    pgconn.send_query_params(
        statement,
        values,
        param_types=[_OIDS[type(value)] for value in values],
        param_formats=[_BINARY] * len(values),
        result_format=_BINARY,
    )
    return _rows(_checked(await _answer(connection)))


async def call(connection: PostgresConnection, function: FunctionCall, values: Sequence[bytes | None]) -> bytes:
    """Call a function and return its value.

    The server parses and plans a repeated call once per connection. This holds only for functions:
    a plan that reads a table should change when the table has grown.

    Behind a pooler nothing is prepared, as the next transaction may be on another connection to the
    server. A pooler shows itself by the process number that it reports. If one did not, the server
    would not know the statement, and nothing would be carried out.
    """
    if not USE_LIBPQ:
        return await connection.fetch_raw(function.text, function.adapted(values))
    known = connection.prepared
    name = known.names.get(function.text)
    if name is None:
        known.asked += 1
        if known.asked <= _PREPARED_AFTER or not await _may_prepare(connection):
            return await _call_unprepared(connection, function, values)
        name = await _prepare(connection, b"holdfast_%d" % len(known.names), function)
        known.names[function.text] = name
    pgconn = connection.pgconn
    pgconn.send_query_prepared(name, values, function.formats, _BINARY)
    result = await _answer(connection)
    if result.status != _TUPLES_OK and error_from_result(result).sqlstate == _NO_SUCH_STATEMENT:
        known.may_be = False
        known.names.clear()
        return await _call_unprepared(connection, function, values)
    return raw_value(_checked(result))


async def _may_prepare(connection: PostgresConnection) -> bool:
    known = connection.prepared
    if known.may_be is None:
        [[process]] = await ask(connection, WHO, ())
        known.may_be = process == connection.pgconn.backend_pid
    return known.may_be


async def _prepare(connection: PostgresConnection, name: bytes, function: FunctionCall) -> bytes:
    connection.pgconn.send_prepare(name, function.text, function.types)
    result = await _answer(connection)
    if result.status != _COMMAND_OK:
        raise error_from_result(result)
    return name


async def _call_unprepared(
    connection: PostgresConnection, function: FunctionCall, values: Sequence[bytes | None]
) -> bytes:
    pgconn = connection.pgconn
    pgconn.send_query_params(function.text, values, function.types, function.formats, _BINARY)
    return raw_value(_checked(await _answer(connection)))


def _checked(result: pq.abc.PGresult) -> pq.abc.PGresult:
    if result.status == _TUPLES_OK:
        return result
    raise error_from_result(result)


async def _answer(connection: PostgresConnection) -> pq.abc.PGresult:
    """Return the first result: a query has one, or an error that comes first."""
    pgconn = connection.pgconn
    first: pq.abc.PGresult | None = None
    while True:
        await connection.until_answered()
        result = pgconn.get_result()
        if result is None:
            assert first is not None
            return first
        first = first or result


def _rows(result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
    columns = [(column, _LOADERS[result.ftype(column)]) for column in range(result.nfields)]
    return [
        tuple(None if (data := result.get_value(row, column)) is None else load(data) for column, load in columns)
        for row in range(result.ntuples)
    ]
