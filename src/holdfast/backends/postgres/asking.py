"""Questions to PostgreSQL over libpq itself, for what is asked with every save and restore.

psycopg's cursors wait in a task of their own, adapt every value and look up every type: for a small save that took longer
than all the rest. What is asked here is given and answered in binary: bytes, whole numbers, arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from psycopg import pq
from psycopg.errors import error_from_result

from holdfast.backends.postgres.arrays import BIGINT, BIGINTS, BYTEA, BYTEAS, TEXTS, BytesArray, IntsArray, TextArray
from holdfast.backends.postgres.link import Link

Value = BytesArray | IntsArray | TextArray

_INTEGER = 23
_OIDS: dict[type, int] = {BytesArray: BYTEAS, IntsArray: BIGINTS, TextArray: TEXTS}
_BIG, _INT = Struct(">q").unpack, Struct(">i").unpack
_PREPARED_AFTER = 4  # calls over one connection: who calls less often would pay for it without a gain
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


class Call:
    """A call of a function of the database, which returns one value."""

    __slots__ = ("formats", "text", "types")

    def __init__(self, function: str, types: Sequence[int]) -> None:
        places = ", ".join(f"${number}" for number in range(1, len(types) + 1))
        self.text = f"SELECT {function}({places})".encode()
        self.types = types
        self.formats = [_BINARY] * len(types)


async def ask(connection: Link, statement: bytes, values: Sequence[Value]) -> list[tuple[Any, ...]]:
    """The rows of the answer. Raises what psycopg would. The connection is this call's own meanwhile."""
    pgconn = connection.pgconn
    pgconn.send_query_params(
        statement,
        values,
        param_types=[_OIDS[type(value)] for value in values],
        param_formats=[_BINARY] * len(values),
        result_format=_BINARY,
    )
    return _rows(_checked(await _answer(connection)))


async def call(connection: Link, function: Call, values: Sequence[bytes | None]) -> bytes:
    """What the function returns. A call that is made again and again over one connection the server reads and plans once:
    only functions, since a plan that looks at a table should be made anew when the table has grown.

    Not behind a pooler, whose next transaction may be on another connection to the server. It shows itself by the number
    of the process that it names; one that did not would be found by the server's not knowing the statement, and then
    nothing was carried out."""
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
    return _value(result)


async def _may_prepare(connection: Link) -> bool:
    known = connection.prepared
    if known.may_be is None:
        [[process]] = await ask(connection, WHO, ())
        known.may_be = process == connection.pgconn.backend_pid
    return known.may_be


async def _prepare(connection: Link, name: bytes, function: Call) -> bytes:
    connection.pgconn.send_prepare(name, function.text, function.types)
    result = await _answer(connection)
    if result.status != _COMMAND_OK:
        raise error_from_result(result)
    return name


async def _call_unprepared(connection: Link, function: Call, values: Sequence[bytes | None]) -> bytes:
    pgconn = connection.pgconn
    pgconn.send_query_params(function.text, values, function.types, function.formats, _BINARY)
    return _value(await _answer(connection))


def _checked(result: pq.abc.PGresult) -> pq.abc.PGresult:
    if result.status == _TUPLES_OK:
        return result
    raise error_from_result(result)


def _value(result: pq.abc.PGresult) -> bytes:
    value = _checked(result).get_value(0, 0)
    assert value is not None
    return value


async def _answer(connection: Link) -> pq.abc.PGresult:
    """The first result: a question has one, or an error that comes first."""
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
