"""Connections to PostgreSQL for those who have no event loop: each answer is waited for by the thread that asked.

A call that goes to an event loop in another thread and comes back costs two switches of threads and a turn of the loop, as much
as all else that a client does for a small save. The verbs of the backend are the same coroutines here; they never suspend.
"""

from __future__ import annotations

import os
import select
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import Connection, RawCursor, pq

from holdfast.backends.postgres.arrays import CONTEXT
from holdfast.backends.postgres.failures import translate
from holdfast.backends.postgres.link import Prepared, Rows, leave_to_parent
from holdfast.backends.postgres.places import ThreadPlaces
from holdfast.errors import StoreError

T = TypeVar("T")


class BlockingConnection(Connection[tuple[Any, ...]]):
    """A `Link` for one thread at a time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prepared = Prepared()
        self._socket = self.pgconn.socket
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)

    @property
    def has_news(self) -> bool:
        """Whether the server has said something, unasked: that it is going, or nothing any more."""
        return self.closed or bool(self._readable.poll(0))

    async def until_answered(self) -> None:
        # Python's own poll, not libpq's: what a signal's handler raises, Ctrl-C above all, is raised at once.
        pgconn = self.pgconn
        while pgconn.flush():  # a large commit does not fit into the socket at once
            self._until_writable()
        while pgconn.is_busy():
            self._readable.poll()
            pgconn.consume_input()

    def _until_writable(self) -> None:
        """Or until something was read: a server that has to wait until it is heard does not listen."""
        either = select.poll()
        either.register(self._socket, select.POLLIN | select.POLLOUT)
        if any(event & ~select.POLLOUT for _, event in either.poll()):
            self.pgconn.consume_input()

    async def fetch(self, query: bytes, values: Sequence[Any] = ()) -> Rows:
        with self.cursor(binary=True) as cursor:
            cursor.execute(query, values)
            return cursor.fetchall()

    async def run(self, query: bytes) -> None:
        self.execute(query)

    async def aside(self, call: Callable[[], T]) -> T:
        return call()

    def leave_to_parent(self) -> None:
        """In a forked child: gives it up without a word to the server."""
        leave_to_parent(self._socket, is_closed=self.closed)
        self.pgconn.finish()


class BlockingConnections:
    """At most `limit` of them, for all threads. Who finds all in use waits, for `timeout` seconds."""

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
        self._idle: list[BlockingConnection] = []  # appended to and popped from, each of which is one step

    @property
    def has_idle(self) -> bool:
        """Whether the next one who asks need neither wait nor connect, as far as can be told."""
        return bool(self._idle)

    def one(self) -> _Loan:
        return _Loan(self)

    def take(self) -> BlockingConnection:
        if self._is_closed:
            raise StoreError(f"the store {self._where} was closed: open a new client")
        if not self._places.take(self._timeout):
            raise StoreError(
                f"the store {self._where} can't be reached: for {self._timeout:g} s all {self._limit} connections were "
                "in use. Raise `max_connections` or `timeout`"
            )
        try:
            return self._idle_one() or self._connect()
        except BaseException:
            self._places.give_back()
            raise

    def give_back(self, connection: BlockingConnection) -> None:
        at_rest = connection.pgconn.transaction_status == pq.TransactionStatus.IDLE
        if connection.closed or not at_rest:
            connection.pgconn.finish()
        else:
            self._idle.append(connection)
            if self._is_closed:  # looked at after it was put there, as `close` looks there after saying so
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
        """In a forked child, which has only the thread that forked it: begins anew, without its parent's connections."""
        for connection in self._idle:
            connection.leave_to_parent()
        self._begin()
        weakref.finalize(self, _finish, self._idle)

    def _idle_one(self) -> BlockingConnection | None:
        """The one that was used last, if any is alive."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not connection.has_news:
                return connection
            connection.pgconn.finish()

    def _connect(self) -> BlockingConnection:
        """Opens one. The driver prepares nothing by itself: behind pgbouncer the next transaction is on another server."""
        try:
            return BlockingConnection.connect(
                self._conninfo, autocommit=True, prepare_threshold=None, context=CONTEXT, cursor_factory=RawCursor
            )
        except psycopg.Error as error:
            raise translate(error, self._where, "reached") from error


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
