"""A connection to PostgreSQL for callers with an event loop.

It wraps the driver's connection and waits for answers without the driver. `sync_connection.py` has
the one for callers without an event loop.
"""

from __future__ import annotations

import asyncio
import select
import weakref
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection

from holdfast.backends.postgres.connection_port import PreparedStatements, Rows, leave_to_parent, raw_value
from holdfast.backends.postgres.notices import Notices
from holdfast.backends.postgres.timeouts import SilentError, Steps, insist, quiet_seconds

T = TypeVar("T")


class Connection(AsyncConnection[tuple[Any, ...]]):
    """A `PostgresConnection` in an event loop: the driver's connection and its state.

    `until_answered` leaves the socket registered with the event loop from one call to the next:
    registering and removing it took as long as sending and receiving.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prepared = PreparedStatements()
        self.notices = Notices()
        self.add_notice_handler(self.notices.note)
        self.timeout = 30.0
        self.is_at_work: Callable[[], Awaitable[bool]] | None = None
        self._poll = select.poll()
        self._poll.register(self.pgconn.socket, select.POLLIN)
        self._socket = self.pgconn.socket  # its number: the driver forgets it when the connection is lost
        self._watched_by: Callable[[], asyncio.AbstractEventLoop | None] | None = None  # weak: the loop refers to us
        self._waiter: asyncio.Future[bool] | None = None  # False: the server was silent
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_news(self) -> bool:
        """Return whether the server sent something unasked, mostly that it shuts down or the connection ended.

        Other messages (a setting has changed) are not worth telling apart: then a new connection is
        opened.
        """
        return self.closed or bool(self._poll.poll(0))

    async def fetch(self, query: bytes, values: Sequence[Any] = ()) -> Rows:
        async with self.cursor(binary=True) as cursor:
            await cursor.execute(query, values)
            return await cursor.fetchall()

    async def fetch_raw(self, query: bytes, values: Sequence[Any]) -> bytes:
        async with self.cursor(binary=True) as cursor:
            await cursor.execute(query, values)
            return raw_value(cursor.pgresult)

    async def run(self, query: bytes) -> None:
        await self.execute(query)

    async def aside(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)

    async def until_answered(self) -> None:
        """Send what is not sent yet, and return when the next result is there."""
        try:
            await self._answered(quiet_seconds(self.timeout))
        except SilentError:
            await insist(self, self._answered)

    async def _answered(self, seconds: float) -> None:
        loop, pgconn = asyncio.get_running_loop(), self.pgconn
        while pgconn.flush():  # a large commit does not fit into the socket at once
            await self._until_writable(loop, seconds)
        if pgconn.is_busy():
            self._watch(loop)
            await self._told(loop, seconds)

    async def _until_writable(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Wait until the socket is writable or readable: a server blocked on sending does not listen."""
        self._watch(loop)
        loop.add_writer(self._socket, self._tell)
        try:
            await self._told(loop, seconds)
        finally:
            loop.remove_writer(self._socket)

    async def _told(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._waiter = loop.create_future()
        self._heard_at = loop.time()
        self._timer = loop.call_at(self._heard_at + seconds, self._look_at_the_clock, loop, seconds)
        try:
            if not await self._waiter:
                raise SilentError
        finally:
            self._timer.cancel()
            self._waiter = self._timer = None

    def _look_at_the_clock(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        if self._waiter is None or self._waiter.done():
            return
        until = self._heard_at + seconds
        if loop.time() >= until:
            self._waiter.set_result(False)
        else:  # a part of the answer has come since
            self._timer = loop.call_at(until, self._look_at_the_clock, loop, seconds)

    def _tell(self, error: psycopg.Error | None = None) -> None:
        if self._waiter is None or self._waiter.done():
            return
        if error is None:
            self._waiter.set_result(True)
        else:
            self._waiter.set_exception(error)

    async def ask_to_cancel(self, seconds: float) -> None:
        await self.cancel_safe(timeout=seconds)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watched_by is None:
            loop.add_reader(self._socket, self._read)
            self._watched_by = weakref.ref(loop)

    def _read(self) -> None:
        if self._waiter is None:  # no caller waits: `has_news` finds it
            self._unwatch()
            return
        self._heard_at = asyncio.get_running_loop().time()
        try:
            self.pgconn.consume_input()
            is_told = not self.pgconn.is_busy()
        except psycopg.Error as error:
            self._unwatch()
            self._tell(error)
        else:
            if is_told:
                self._tell()

    def _unwatch(self) -> None:
        loop = self._watched_by() if self._watched_by is not None else None
        self._watched_by = None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._socket)

    async def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Wait as the driver does, which hands the socket to the loop itself."""
        self._unwatch()
        steps = Steps(gen)
        wait = super().wait

        async def answered(seconds: float) -> Any:
            return await wait(steps.within(seconds), *args, **kwargs)

        try:
            return await answered(quiet_seconds(self.timeout))
        except SilentError:
            return await insist(self, answered)

    def finish(self) -> None:
        """Close it, from any thread, with or without its event loop."""
        loop = self._watched_by() if self._watched_by is not None else None
        if loop is not None and loop.is_running() and loop is not asyncio._get_running_loop():
            # Its loop, in another thread, must release the socket before its number may belong to another one.
            with suppress(RuntimeError):  # closed just now
                loop.call_soon_threadsafe(self.finish)
                return
        self._unwatch()
        self.pgconn.finish()

    def leave_to_parent(self) -> None:
        """Give it up in a forked child, without a word to the server or to the parent's event loop."""
        self._watched_by = None
        leave_to_parent(self._socket, is_closed=self.closed)
