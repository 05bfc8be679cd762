"""Connections to PostgreSQL for callers without an event loop: the calling thread waits.

A call to an event loop in another thread costs two thread switches and a turn of the loop, as much
as all other work of a client for a small save. The verbs of the backend are the same coroutines
here; they never suspend.
"""

from __future__ import annotations

import os
import select
import time
import weakref
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import Connection, RawCursor, pq

from holdfast.backends.bridge.step import run_inline
from holdfast.backends.fair_semaphore import ThreadPlaces
from holdfast.backends.postgres.binary_arrays import CONTEXT
from holdfast.backends.postgres.connection_port import Rows, leave_to_parent, raw_value
from holdfast.backends.postgres.errors import translate
from holdfast.backends.postgres.notices import Notices
from holdfast.backends.postgres.timeouts import SilentError, Steps, insist, quiet_seconds
from holdfast.errors import StoreBusyError, StoreError

T = TypeVar("T")


class BlockingConnection(Connection[tuple[Any, ...]]):
    """A `PostgresConnection` for one thread at a time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.notices = Notices()
        self.add_notice_handler(self.notices.note)
        self.timeout = 30.0
        self.is_at_work: Callable[[], Awaitable[bool]] | None = None
        self._socket = self.pgconn.socket
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)

    @property
    def has_news(self) -> bool:
        """Return whether the server sent something unasked, mostly that it shuts down."""
        return self.closed or bool(self._readable.poll(0))

    async def ask_to_cancel(self, seconds: float) -> None:
        self.cancel_safe(timeout=seconds)

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        steps = Steps(gen)
        wait = super().wait

        async def answered(seconds: float) -> Any:
            return wait(steps.run_within(seconds), *args, **kwargs)

        try:
            return run_inline(answered(quiet_seconds(self.timeout)))
        except SilentError:
            return run_inline(insist(self, answered))

    def finish(self) -> None:
        self.pgconn.finish()

    async def fetch(self, query: bytes, values: Sequence[Any] = ()) -> Rows:
        with self.cursor(binary=True) as cursor:
            cursor.execute(query, values)
            return cursor.fetchall()

    async def fetch_raw(self, query: bytes, values: Sequence[Any]) -> bytes:
        with self.cursor(binary=True) as cursor:
            cursor.execute(query, values)
            return raw_value(cursor.pgresult)

    async def run(self, query: bytes) -> None:
        self.execute(query)

    async def run_in_thread(self, call: Callable[[], T]) -> T:
        return call()

    def leave_to_parent(self) -> None:
        """Give it up in a forked child, without a word to the server."""
        leave_to_parent(self._socket, is_closed=self.closed)
        self.pgconn.finish()


class BlockingConnections:
    """At most `limit` connections, for all threads.

    If all are in use, a thread waits for one for `timeout` seconds.
    """

    def __init__(self, conninfo: str, where: str, limit: int, timeout: float) -> None:
        self._conninfo = conninfo
        self._where = where
        self._limit = limit
        self._timeout = timeout
        self._is_closed = False
        self._begin()
        weakref.finalize(self, _finish, self._idle)
        _everywhere.add(self)

    def _begin(self) -> None:
        self._places = ThreadPlaces(self._limit)
        self._idle: list[BlockingConnection] = []  # append and pop are atomic

    @property
    def has_idle(self) -> bool:
        """Return whether the next caller probably need neither wait nor connect."""
        return bool(self._idle)

    def acquire(self) -> _Loan:
        return _Loan(self)

    def take(self) -> BlockingConnection:
        if self._is_closed:
            raise StoreError(f"the store {self._where} was closed: open a new client")
        if not self._places.take(self._timeout):
            raise StoreBusyError(
                f"the store {self._where} can't be reached: for {self._timeout:g} s all {self._limit} connections were "
                "in use. Raise `max_connections` or `timeout`"
            )
        try:
            return self._take_idle() or run_inline(self.connect())
        except BaseException:
            self._places.give_back()
            raise

    def give_back(self, connection: BlockingConnection) -> None:
        at_rest = connection.pgconn.transaction_status == pq.TransactionStatus.IDLE
        if connection.closed or not at_rest:
            connection.pgconn.finish()
        else:
            self._idle.append(connection)
            if self._is_closed:  # checked after it was put there, as `close` looks there after setting the flag
                self.drop_idle()
        self._places.give_back()

    def drop_idle(self) -> None:
        _finish(self._idle)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop

    def close(self) -> None:
        self._is_closed = True
        self.drop_idle()

    def leave_to_parent(self) -> None:
        """Begin again in a forked child, which has one thread and must not use its parent's connections."""
        for connection in self._idle:
            connection.leave_to_parent()
        self._begin()
        weakref.finalize(self, _finish, self._idle)

    def _take_idle(self) -> BlockingConnection | None:
        """Return the connection that was used last, if any is alive."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not connection.has_news:
                return connection
            connection.pgconn.finish()

    async def connect(self) -> BlockingConnection:
        """Open a connection on which the driver prepares nothing.

        Behind pgbouncer the next transaction is on another server.
        """
        try:
            connection = BlockingConnection.connect(
                self._conninfo, autocommit=True, prepare_threshold=None, context=CONTEXT, cursor_factory=RawCursor
            )
        except psycopg.Error as error:
            raise translate(error, self._where, "reached") from error
        connection.timeout = self._timeout
        return connection


class _Loan:
    """A connection for an `async with` block."""

    __slots__ = ("_connection", "_connections")

    def __init__(self, connections: BlockingConnections) -> None:
        self._connections = connections

    async def __aenter__(self) -> BlockingConnection:
        self._connection = self._connections.take()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        self._connections.give_back(self._connection)


def _finish(connections: list[BlockingConnection]) -> None:
    while connections:
        try:
            connection = connections.pop()
        except IndexError:  # another thread was quicker
            return
        connection.pgconn.finish()


_everywhere: WeakSet[BlockingConnections] = WeakSet()


def _after_fork_in_child() -> None:
    for connections in list(_everywhere):
        connections.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
