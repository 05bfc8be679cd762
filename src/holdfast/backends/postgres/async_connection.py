"""A connection to PostgreSQL for callers with an event loop.

`sync_connection.py` has the one for callers without an event loop.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar

from psycopg import AsyncConnection

from holdfast.backends.postgres.connection_port import Rows, leave_to_parent, raw_value
from holdfast.backends.postgres.notices import Notices
from holdfast.backends.postgres.timeouts import SilentError, Steps, insist, quiet_seconds

T = TypeVar("T")


class Connection(AsyncConnection[tuple[Any, ...]]):
    """A `PostgresConnection` in an event loop: the driver's connection, and a limit to its waiting."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.notices = Notices()
        self.add_notice_handler(self.notices.note)
        self.timeout = 30.0
        self.is_at_work: Callable[[], Awaitable[bool]] | None = None
        self._poll = select.poll()
        self._poll.register(self.pgconn.socket, select.POLLIN)
        self._socket = self.pgconn.socket  # its number: the driver forgets it when the connection is lost

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

    async def run_in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)

    async def ask_to_cancel(self, seconds: float) -> None:
        await self.cancel_safe(timeout=seconds)

    async def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Wait as the driver does, and no longer than the server may be silent."""
        steps = Steps(gen)
        wait = super().wait

        async def answered(seconds: float) -> Any:
            return await wait(steps.run_within(seconds), *args, **kwargs)

        try:
            return await answered(quiet_seconds(self.timeout))
        except SilentError:
            return await insist(self, answered)

    def finish(self) -> None:
        """Close it, from any thread, with or without its event loop."""
        self.pgconn.finish()

    def leave_to_parent(self) -> None:
        """Give it up in a forked child, without a word to the server."""
        leave_to_parent(self._socket, is_closed=self.closed)
