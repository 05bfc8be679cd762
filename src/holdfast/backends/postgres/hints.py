"""NOTIFY as a hint: who follows hears that there is something new, and looks.

A hint may be lost, come late or be about nothing. Events are found by looking, so nothing depends on it but how soon.

It is sent after the commit, by itself. Within a commit it would make all commits of the server wait for each other: whoever
notifies holds one lock of the whole server until its flush is done. And it is sent only where somebody listens: who does
holds an advisory lock, shared, and a writer that finds it free asks again only after a while.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from weakref import WeakKeyDictionary

import psycopg

from holdfast.backends.postgres.blocking import BlockingConnections
from holdfast.backends.postgres.commit import lock_number
from holdfast.backends.postgres.connections import Connections, Ear
from holdfast.backends.postgres.failures import translate
from holdfast.backends.postgres.link import Links
from holdfast.backends.stepping import run_inline
from holdfast.errors import HoldfastError

ASK_AGAIN_SECONDS = 1.0

# The lock is given back in the statement that takes it, so this works behind pgbouncer. Whoever meets another writer in
# that moment hints for nothing.
HINT = (
    b"SELECT CASE WHEN pg_try_advisory_lock($1::bigint) THEN pg_advisory_unlock($1::bigint) IS NULL "
    b"ELSE pg_notify($2::text, '') IS NOT NULL END"
)
WHO = b"SELECT pg_backend_pid()"
LISTEN = b"SELECT pg_try_advisory_lock_shared($1::bigint)"


class _Channel:
    """Where the hints of one store go."""

    def __init__(self, links: Links, schema: str) -> None:
        self._links = links
        self._lock = lock_number(b"listening", schema.encode("utf-8", "replace"))
        self._channel = f"holdfast_{self._lock & (2**64 - 1):016x}"

    async def _is_heard(self) -> bool:
        """Sends a hint if somebody listens; whether somebody does. What goes wrong is nobody's trouble."""
        with suppress(psycopg.Error, HoldfastError):
            async with self._links.one() as connection:
                [[is_heard]] = await connection.fetch(HINT, (self._lock, self._channel))
                return bool(is_heard)
        return False


class Hints(_Channel):
    """The hints of those who have an event loop: sent by `tell`, awaited by `news`."""

    def __init__(self, connections: Connections, schema: str) -> None:
        super().__init__(connections, schema)
        self._connections = connections
        self._sending: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()
        self._is_news = False
        self._quiet_until = 0.0
        self._are_heard = True  # until a pooler was found in between

    def tell(self) -> None:
        """Something was committed. Returns at once."""
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

    async def news(self) -> None:
        """Returns when somebody may have committed something; never, where hints don't reach us."""
        if self._are_heard:
            try:
                async with self._connections.ear() as ear:
                    if ear.connection is None:
                        await self._listen(ear)
                    if ear.connection is not None:
                        await ear.heard()
                        return
            except psycopg.Error as error:
                raise translate(error, "the server", "listened to") from error
            self._are_heard = False
        await asyncio.get_running_loop().create_future()

    async def _listen(self, ear: Ear) -> None:
        """Begins to listen. Not behind a pooler, whose connections to the server are not ours from one statement to the
        next: it shows itself by the number of the process that it names."""
        connection = await self._connections.connect()
        try:
            [[process]] = await connection.fetch(WHO)
            if process != connection.pgconn.backend_pid:
                connection.finish()
                return
            await connection.fetch(LISTEN, (self._lock,))
            await connection.run(f"LISTEN {self._channel}".encode())
        except BaseException:
            connection.finish()
            raise
        ear.take(connection)


class ThreadHints(_Channel):
    """The hints of those who have none. Whether somebody listens is asked by who commits, once in a while, over a connection that is
    at hand. As long as somebody does, a thread sends them: a hint waits for a flush, and no save should wait for that, too."""

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

    def tell(self) -> None:
        """Something was committed."""
        if time.monotonic() < self._quiet_until:
            return
        if self._process != os.getpid():  # a forked child has no threads of its parent
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
        while self._is_told():
            if not run_inline(self._is_heard()):
                self._be_quiet()
                with self._changing:
                    self._is_sending = False
                return

    def _is_told(self) -> bool:
        """Waits for news, for a while. What is said after that is sent by who says it."""
        with self._changing:
            self._changing.wait_for(lambda: self._is_news, ASK_AGAIN_SECONDS)
            is_news, self._is_news = self._is_news, False
            self._is_sending = is_news
            return is_news

    def _be_quiet(self) -> None:
        self._quiet_until = time.monotonic() + ASK_AGAIN_SECONDS
