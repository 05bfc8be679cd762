"""One question to PostgreSQL over libpq itself, for what is asked with every save and restore.

psycopg's cursors wait in a task of their own, adapt every value and look up every type: for a small save that took longer
than all the rest. What is asked here has arrays as its values, and bytes and whole numbers in its answers, all binary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from psycopg import pq
from psycopg.errors import error_from_result

from holdfast.backends.postgres.arrays import BytesArray, IntsArray, TextArray
from holdfast.backends.postgres.connections import Connection

Value = BytesArray | IntsArray | TextArray | bool

_BOOL, _BYTEA, _BIGINT, _INTEGER, _INTEGERS = 16, 17, 20, 23, 1007
_OIDS: dict[type, int] = {BytesArray: 1001, IntsArray: 1016, TextArray: 1009, bool: _BOOL}
_BIG, _INT = Struct(">q").unpack, Struct(">i").unpack


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
    given = [(b"\1" if value else b"\0") if isinstance(value, bool) else value for value in values]
    pgconn.send_query_params(
        statement,
        given,
        param_types=[_OIDS[type(value)] for value in values],
        param_formats=[pq.Format.BINARY] * len(values),
        result_format=pq.Format.BINARY,
    )
    result = await _answer(pgconn)
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
