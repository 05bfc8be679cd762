"""One connection to PostgreSQL for those who have an event loop: the driver's, and how its answers are waited for without the
driver. blocking.py has the one for those who have none."""

from __future__ import annotations

import asyncio
import select
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection

from holdfast.backends.postgres.link import Prepared, Rows, leave_to_parent

T = TypeVar("T")


class Connection(AsyncConnection[tuple[Any, ...]]):
    """A `Link`: the driver's, with what is known of it. Whoever has it may wait for answers by `until_answered`, which leaves its socket
    with the event loop from one call to the next: to hand it over and take it back took as long as to send and to receive."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prepared = Prepared()
        self._poll = select.poll()
        self._poll.register(self.pgconn.socket, select.POLLIN)
        self._socket = self.pgconn.socket  # its number: the driver forgets it when the connection is lost
        self._watched_by: Callable[[], asyncio.AbstractEventLoop | None] | None = None  # weak: the loop has us
        self._waiter: asyncio.Future[None] | None = None

    @property
    def has_news(self) -> bool:
        """Whether the server has said something, unasked: that it is going, or nothing any more. What else it might say (a
        setting has changed) is not worth the difference: then a new connection is opened."""
        return self.closed or bool(self._poll.poll(0))

    async def fetch(self, query: bytes, values: Sequence[Any] = ()) -> Rows:
        async with self.cursor(binary=True) as cursor:
            await cursor.execute(query, values)
            return await cursor.fetchall()

    async def run(self, query: bytes) -> None:
        await self.execute(query)

    async def aside(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)

    async def until_answered(self) -> None:
        """Sends what is not sent yet, and returns when the next result is there."""
        loop, pgconn = asyncio.get_running_loop(), self.pgconn
        while pgconn.flush():  # a large commit does not fit into the socket at once
            await self._until_writable(loop)
        if pgconn.is_busy():
            self._watch(loop)
            await self._told(loop)

    async def _until_writable(self, loop: asyncio.AbstractEventLoop) -> None:
        """Or until something was read: a server that has to wait until it is heard does not listen."""
        self._watch(loop)
        loop.add_writer(self._socket, self._tell)
        try:
            await self._told(loop)
        finally:
            loop.remove_writer(self._socket)

    async def _told(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _tell(self, error: psycopg.Error | None = None) -> None:
        if self._waiter is None or self._waiter.done():
            return
        if error is None:
            self._waiter.set_result(None)
        else:
            self._waiter.set_exception(error)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watched_by is None:
            loop.add_reader(self._socket, self._read)
            self._watched_by = weakref.ref(loop)

    def _read(self) -> None:
        if self._waiter is None:  # nobody has asked: `has_news` finds it
            self._unwatch()
            return
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

    async def wait(self, *args: Any, **kwargs: Any) -> Any:
        """How the driver waits, which hands the socket to the loop itself."""
        self._unwatch()
        return await super().wait(*args, **kwargs)

    def finish(self) -> None:
        """Closes it, from any thread, with or without its event loop."""
        loop = self._watched_by() if self._watched_by is not None else None
        if loop is not None and loop.is_running() and loop is not asyncio._get_running_loop():
            # Its loop, which another thread runs, must let go of the socket before the number may belong to another one.
            with suppress(RuntimeError):  # closed just now
                loop.call_soon_threadsafe(self.finish)
                return
        self._unwatch()
        self.pgconn.finish()

    def leave_to_parent(self) -> None:
        """In a forked child: gives it up without a word to the server, or to the parent's event loop."""
        self._watched_by = None
        leave_to_parent(self._socket, is_closed=self.closed)
