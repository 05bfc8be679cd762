"""A pool of connections to PostgreSQL: for each event loop its own, opened on demand, up to a limit.

It replaces psycopg_pool for three reasons. It has no background tasks, so a client may be used in
one `asyncio.run` after the other, and a program that never closes it ends. An unreachable server is
named at once, with the driver's reason. And a connection that died while it was idle is detected
without a round trip.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg import AsyncRawCursor

from holdfast.backends.fair_semaphore import LoopPlaces
from holdfast.backends.postgres.async_connection import Connection
from holdfast.backends.postgres.binary_arrays import CONTEXT
from holdfast.backends.postgres.dsn import SHORTEST_CONNECT_SECONDS
from holdfast.backends.postgres.errors import translate
from holdfast.errors import StoreBusyError, StoreError

LINGER_SECONDS = 5.0


class PostgresPool:
    """All connections of one store, of all loops and threads."""

    def __init__(self, conninfo: str, where: str, limit: int, timeout: float) -> None:
        self._conninfo = conninfo
        self._where = where
        self._limit = limit
        self._timeout = timeout
        self._lock = threading.Lock()
        self._is_closed = False
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()
        self._used_last: Callable[[], _Pool | None] = lambda: None  # weak: a loop that is gone takes its pool with it
        _everywhere.add(self)

    def acquire(self) -> _Loan:
        """Lend a live connection for an `async with` block. Waits for one if all are in use."""
        return _Loan(self)

    async def take(self) -> tuple[_Pool, Connection]:
        pool = self._pool()
        if not pool.places.take_at_once():
            await self._wait_for(pool)
        try:
            return pool, pool.take_idle() or await self.connect()
        except BaseException:
            pool.places.give_back()
            raise

    def give_back(self, pool: _Pool, connection: Connection) -> None:
        pool.give_back(connection, is_closed=self._is_closed)
        pool.places.give_back()

    async def _wait_for(self, pool: _Pool) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await pool.places.take()
        except TimeoutError as error:
            raise StoreBusyError(
                f"the store {self._where} can't be reached: for {self._timeout:g} s all {self._limit} connections were "
                "in use. Raise `max_connections` or `timeout`"
            ) from error

    @asynccontextmanager
    async def lend_listener(self) -> AsyncIterator[NotifyConnection]:
        """Lend this loop's listening connection, to one caller at a time. `limit` does not count it."""
        ear = self._pool().ear
        async with ear.turn:
            ear.keep()
            try:
                yield ear
            except BaseException as error:
                if not isinstance(error, asyncio.CancelledError):
                    ear.close()
                raise
            finally:
                ear.let_go_soon()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def drop_idle(self) -> None:
        """Close this loop's idle connections: after a failure they may lead to a server that is gone."""
        self._pool().close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            pools = list(self._pools.values())
        for pool in pools:
            pool.close()

    async def connect(self) -> Connection:
        """Open a connection on which the driver prepares nothing.

        Behind pgbouncer the next transaction is on another server.
        """
        task = asyncio.current_task()
        cancelled = task.cancelling() if task else 0
        seconds = max(self._timeout, SHORTEST_CONNECT_SECONDS)
        try:
            async with asyncio.timeout(seconds):  # the driver's own timeout does not count the name lookup
                connection = await Connection.connect(
                    self._conninfo,
                    autocommit=True,
                    prepare_threshold=None,
                    context=CONTEXT,
                    cursor_factory=AsyncRawCursor,
                )
        except psycopg.Error as error:
            raise translate(error, self._where, "reached") from error
        except TimeoutError as error:
            raise StoreError(
                f"the store {self._where} can't be reached: no connection within {seconds:g} s. Check the server and "
                "the network, then try again"
            ) from error
        connection.timeout = self._timeout
        if task is not None and task.cancelling() > cancelled:
            # Before Python 3.12, `asyncio.wait_for`, by which the driver waits, forgets that its task was
            # cancelled if the awaited future is done in the same turn of the loop.
            _finish([connection])
            raise asyncio.CancelledError
        return connection

    def leave_to_parent(self) -> None:
        """Give up the parent's connections in a forked child, without a word to the server."""
        self._lock = threading.Lock()  # a thread that the child lacks may have held it
        for pool in list(self._pools.values()):
            pool.leave_to_parent()
        self._pools = WeakKeyDictionary()
        self._used_last = lambda: None

    def _pool(self) -> _Pool:
        if self._is_closed:
            raise StoreError(f"the store {self._where} was closed: open a new client")
        loop = asyncio.get_running_loop()
        last = self._used_last()
        if last is not None and last.loop() is loop:
            return last
        with self._lock:
            pool = self._pools.get(loop)
            if pool is None:
                for other, of_other in list(self._pools.items()):
                    if other.is_closed():
                        of_other.close()
                        del self._pools[other]
                pool = self._pools[loop] = _Pool(loop, self._limit)
            self._used_last = weakref.ref(pool)
            return pool


class _Loan:
    """A lent connection, as an `async with` block: a class, since a generator would double the cost."""

    __slots__ = ("_connection", "_connections", "_pool")

    def __init__(self, connections: PostgresPool) -> None:
        self._connections = connections

    async def __aenter__(self) -> Connection:
        self._pool, self._connection = await self._connections.take()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        self._connections.give_back(self._pool, self._connection)


class NotifyConnection:
    """The connection by which an event loop hears of commits, while any task in it waits for them."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._held: list[Connection] = []
        self._letting_go: asyncio.TimerHandle | None = None
        weakref.finalize(self, _finish, self._held)

    @property
    def connection(self) -> Connection | None:
        return self._held[0] if self._held else None

    def take(self, connection: Connection) -> None:
        self._held.append(connection)

    async def wait_until_notified(self) -> None:
        """Return when the server has sent something."""
        assert self.connection is not None
        loop, pgconn = asyncio.get_running_loop(), self.connection.pgconn
        while True:
            notified: asyncio.Future[None] = loop.create_future()
            loop.add_reader(pgconn.socket, _resolve, notified)
            try:
                await notified
            finally:
                loop.remove_reader(pgconn.socket)
            pgconn.consume_input()
            is_news = False
            while pgconn.notifies():
                is_news = True
            if is_news:
                return

    def keep(self) -> None:
        if self._letting_go is not None:
            self._letting_go.cancel()
            self._letting_go = None

    def let_go_soon(self) -> None:
        """Close it after a while, unless a task listens again: a listener makes writers send hints."""
        self._letting_go = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.close)

    def close(self) -> None:
        _finish(self._held)
        self._held.clear()


class _Pool:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self.loop = weakref.ref(loop)
        self.places = LoopPlaces(limit)
        self.ear = NotifyConnection()
        self._idle: list[Connection] = []
        self._finalizer = weakref.finalize(self, _finish, self._idle)

    def take_idle(self) -> Connection | None:
        """Return the connection that was used last, if any is alive."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_news:
                return connection
            _finish([connection])
        return None

    def give_back(self, connection: Connection, *, is_closed: bool) -> None:
        at_rest = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if is_closed or connection.closed or not at_rest:
            _finish([connection])
        else:
            self._idle.append(connection)

    def close(self) -> None:
        idle = self._idle[:]
        self._idle.clear()
        _finish(idle)
        self.ear.close()

    def leave_to_parent(self) -> None:
        for connection in [*self._idle, *([self.ear.connection] if self.ear.connection else [])]:
            connection.leave_to_parent()
        self.close()


# Closing a connection tells the server: a child that does so, if only by ending, would end its
# parent's.
_everywhere: WeakSet[PostgresPool] = WeakSet()


def _after_fork_in_child() -> None:
    for connections in list(_everywhere):
        connections.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _finish(connections: list[Connection]) -> None:
    """Close connections, with or without their event loop."""
    for connection in connections:
        connection.finish()
