"""One question to PostgreSQL over libpq itself, for what is asked with every save and restore.

psycopg's cursors wait in a task of their own, adapt every value and look up every type: for a small save that took longer
than all the rest. What is asked here has arrays as its values, and bytes and whole numbers in its answers, all binary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import pq
from psycopg.errors import error_from_result

from holdfast.backends.postgres.arrays import BytesArray, IntsArray, TextArray
from holdfast.backends.postgres.connections import Connection

Value = BytesArray | IntsArray | TextArray | bool

_BOOL, _BYTEA, _BIGINT, _INTEGER, _INTEGERS = 16, 17, 20, 23, 1007
_OIDS: dict[type, int] = {BytesArray: 1001, IntsArray: 1016, TextArray: 1009, bool: _BOOL}
_BIG, _INT = Struct(">q").unpack, Struct(">i").unpack
_PREPARED_AFTER = 4  # questions over one connection: who asks less often would pay for it without a gain
_NO_SUCH_STATEMENT = "26000"
WHO = b"SELECT pg_backend_pid()"


def _bigint(data: bytes) -> int:
    number: int = _BIG(data)[0]
    return number


def _integer(data: bytes) -> int:
    number: int = _INT(data)[0]
    return number


def _integers(data: bytes) -> list[int]:
    """An array of int4 without nulls: each element after its length."""
    if len(data) < 20:  # no dimension: empty
        return []
    return [_integer(data[at + 4 : at + 8]) for at in range(20, len(data), 8)]


_LOADERS: dict[int, Callable[[bytes], Any]] = {
    _BYTEA: bytes,
    _BIGINT: _bigint,
    _INTEGER: _integer,
    _INTEGERS: _integers,
}


async def ask(connection: Connection, statement: bytes, values: Sequence[Value]) -> list[tuple[Any, ...]]:
    """The rows of the answer. Raises what psycopg would. The connection is this call's own meanwhile."""
    pgconn = connection.pgconn
    pgconn.send_query_params(
        statement,
        _given(values),
        param_types=[_OIDS[type(value)] for value in values],
        param_formats=[pq.Format.BINARY] * len(values),
        result_format=pq.Format.BINARY,
    )
    return _checked(await _answer(pgconn))


class _Statements:
    """What was prepared on one connection."""

    __slots__ = ("asked", "may_be", "names")

    def __init__(self) -> None:
        self.asked = 0
        self.may_be: bool | None = None  # None: not looked at yet
        self.names: dict[bytes, bytes] = {}


_statements: WeakKeyDictionary[Connection, _Statements] = WeakKeyDictionary()


async def ask_prepared(connection: Connection, statement: bytes, values: Sequence[Value]) -> list[tuple[Any, ...]]:
    """As `ask`; what is asked again and again over one connection the server reads and plans once. Only for calls of
    functions: a plan that looks at a table should be made anew when the table has grown.

    Not behind a pooler, whose next transaction may be on another connection to the server. It shows itself by the number
    of the process that it names; one that did not would be found by the server's not knowing the statement, and then
    nothing was carried out."""
    known = _statements.get(connection)
    if known is None:
        known = _statements[connection] = _Statements()
    name = known.names.get(statement)
    if name is None:
        known.asked += 1
        if known.asked <= _PREPARED_AFTER or known.may_be is False:
            return await ask(connection, statement, values)
        if known.may_be is None:
            [[process]] = await ask(connection, WHO, ())
            known.may_be = process == connection.pgconn.backend_pid
            if not known.may_be:
                return await ask(connection, statement, values)
        name = await _prepare(connection.pgconn, b"holdfast_%d" % len(known.names), statement, values)
        known.names[statement] = name
    pgconn = connection.pgconn
    pgconn.send_query_prepared(
        name, _given(values), param_formats=[pq.Format.BINARY] * len(values), result_format=pq.Format.BINARY
    )
    result = await _answer(pgconn)
    if result.status != pq.ExecStatus.TUPLES_OK and error_from_result(result).sqlstate == _NO_SUCH_STATEMENT:
        known.may_be = False
        known.names.clear()
        return await ask(connection, statement, values)
    return _checked(result)


async def _prepare(pgconn: pq.abc.PGconn, name: bytes, statement: bytes, values: Sequence[Value]) -> bytes:
    pgconn.send_prepare(name, statement, param_types=[_OIDS[type(value)] for value in values])
    result = await _answer(pgconn)
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise error_from_result(result)
    return name


def _given(values: Sequence[Value]) -> list[bytes]:
    return [(b"\1" if value else b"\0") if isinstance(value, bool) else value for value in values]


def _checked(result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
    if result.status == pq.ExecStatus.TUPLES_OK:
        return _rows(result)
    raise error_from_result(result)


async def _answer(pgconn: pq.abc.PGconn) -> pq.abc.PGresult:
    """The first result: a question has one, or an error that comes first."""
    loop = asyncio.get_running_loop()
    socket = pgconn.socket
    while pgconn.flush():  # a large commit does not fit into the socket at once
        await _ready(loop, socket, write=True)
        pgconn.consume_input()
    first: pq.abc.PGresult | None = None
    while True:
        while pgconn.is_busy():
            await _ready(loop, socket, write=False)
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            assert first is not None
            return first
        first = first or result


async def _ready(loop: asyncio.AbstractEventLoop, socket: int, *, write: bool) -> None:
    """Until there is something to read or, with `write`, room to write."""
    future: asyncio.Future[None] = loop.create_future()
    loop.add_reader(socket, _resolve, future)
    if write:
        loop.add_writer(socket, _resolve, future)
    try:
        await future
    finally:
        loop.remove_reader(socket)
        if write:
            loop.remove_writer(socket)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _rows(result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
    columns = [(column, _LOADERS[result.ftype(column)]) for column in range(result.nfields)]
    return [
        tuple(None if (data := result.get_value(row, column)) is None else load(data) for column, load in columns)
        for row in range(result.ntuples)
    ]
