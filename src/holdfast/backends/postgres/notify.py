"""NOTIFY as a hint: followers hear that there is something new, and poll.

A hint may be lost, come late or be spurious. Polling finds the events; a hint only makes it sooner.

A hint is sent after the commit, in a transaction of its own. Within a commit it would serialise all
commits of the server: NOTIFY holds one lock of the whole server until its flush is done. And it is
sent only if there is a listener: each listener holds a shared advisory lock, and a writer that
finds the lock free checks again only after a while.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from weakref import WeakKeyDictionary

import psycopg

from holdfast.backends.bridge.step import run_inline
from holdfast.backends.postgres.commit import lock_number
from holdfast.backends.postgres.connection_port import Links
from holdfast.backends.postgres.errors import translate
from holdfast.backends.postgres.pool import NotifyConnection, PostgresPool
from holdfast.backends.postgres.sync_connection import BlockingConnections
from holdfast.errors import HoldfastError

ASK_AGAIN_SECONDS = 1.0

# The statement that takes the lock also releases it, so this works behind pgbouncer. A writer that
# meets another writer in that moment sends a needless hint.
HINT = (
    b"SELECT CASE WHEN pg_try_advisory_lock($1::bigint) THEN pg_advisory_unlock($1::bigint) IS NULL "
    b"ELSE pg_notify($2::text, '') IS NOT NULL END"
)
BACKEND_PID = b"SELECT pg_backend_pid()"
LISTEN = b"SELECT pg_try_advisory_lock_shared($1::bigint)"


class _Channel:
    """The channel of one store's hints."""

    def __init__(self, links: Links, schema: str) -> None:
        self._links = links
        self._lock = lock_number(b"listening", schema.encode("utf-8", "replace"))
        self._channel = f"holdfast_{self._lock & (2**64 - 1):016x}"

    async def _is_heard(self) -> bool:
        """Send a hint if there is a listener; return whether there is one. Errors are dropped."""
        with suppress(psycopg.Error, HoldfastError):
            async with self._links.acquire() as connection:
                [[is_heard]] = await connection.fetch(HINT, (self._lock, self._channel))
                return bool(is_heard)
        return False


class NotifyListener(_Channel):
    """The hints of callers with an event loop: sent by `announce`, awaited by `wait_for_notify`."""

    def __init__(self, connections: PostgresPool, schema: str) -> None:
        super().__init__(connections, schema)
        self._connections = connections
        self._sending: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()
        self._is_news = False
        self._quiet_until = 0.0
        self._are_heard = True  # until a pooler is found in between

    def announce(self) -> None:
        """Announce a commit. Returns at once."""
        self._is_news = True
        if time.monotonic() < self._quiet_until:
            return
        loop = asyncio.get_running_loop()
        sending = self._sending.get(loop)
        if sending is None or sending.done():
            self._sending[loop] = loop.create_task(self._send())

    async def _send(self) -> None:
        while self._is_news:
            self._is_news = False
            if not await self._is_heard():
                self._quiet_until = time.monotonic() + ASK_AGAIN_SECONDS

    async def wait_for_notify(self) -> None:
        """Return when another process may have committed; never, where hints don't arrive."""
        if self._are_heard:
            try:
                async with self._connections.lend_listener() as ear:
                    if ear.connection is None:
                        await self._listen(ear)
                    if ear.connection is not None:
                        await ear.wait_until_notified()
                        return
            except psycopg.Error as error:
                raise translate(error, "the server", "listened to") from error
            self._are_heard = False
        await asyncio.get_running_loop().create_future()

    async def _listen(self, ear: NotifyConnection) -> None:
        """Begin to listen, unless there is a pooler in between.

        A pooler's connections to the server change from one statement to the next. It shows itself
        by the process number that it reports.
        """
        connection = await self._connections.connect()
        try:
            [[process]] = await connection.fetch(BACKEND_PID)
            if process != connection.pgconn.backend_pid:
                connection.finish()
                return
            await connection.fetch(LISTEN, (self._lock,))
            await connection.run(f"LISTEN {self._channel}".encode())
        except BaseException:
            connection.finish()
            raise
        ear.take(connection)


class ThreadNotifications(_Channel):
    """The hints of callers without an event loop.

    A committer checks once in a while whether there is a listener, over a connection that is at
    hand. While there is one, a thread sends the hints: a hint waits for a flush, and no save should
    wait for that, too.
    """

    def __init__(self, connections: BlockingConnections, schema: str) -> None:
        super().__init__(connections, schema)
        self._connections = connections
        self._quiet_until = 0.0
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._changing = threading.Condition()
        self._is_news = False
        self._is_sending = False

    def announce(self) -> None:
        """Announce a commit."""
        if time.monotonic() < self._quiet_until:
            return
        if self._process != os.getpid():  # a forked child lacks the threads of its parent
            self._begin()
        with self._changing:
            if self._is_sending:
                self._is_news = True
                self._changing.notify()
                return
        is_at_hand = self._connections.has_idle
        if is_at_hand and not run_inline(self._is_heard()):
            self._be_quiet()
            return
        with self._changing:
            if not is_at_hand:
                self._is_news = True
            if not self._is_sending:
                self._is_sending = True
                threading.Thread(target=self._send, name="holdfast-hints", daemon=True).start()

    def _send(self) -> None:
        while self._wait_for_commit():
            if not run_inline(self._is_heard()):
                self._be_quiet()
                with self._changing:
                    self._is_sending = False
                return

    def _wait_for_commit(self) -> bool:
        """Wait for a commit to announce, for a while. After that the committer itself sends the next hint."""
        with self._changing:
            self._changing.wait_for(lambda: self._is_news, ASK_AGAIN_SECONDS)
            is_news, self._is_news = self._is_news, False
            self._is_sending = is_news
            return is_news

    def _be_quiet(self) -> None:
        self._quiet_until = time.monotonic() + ASK_AGAIN_SECONDS
