"""NOTIFY as a hint: who follows hears that there is something new, and looks.

A hint may be lost, come late or be about nothing. Events are found by looking, so nothing depends on it but how soon.

It is sent after the commit, by itself. Within a commit it would make all commits of the server wait for each other: whoever
notifies holds one lock of the whole server until its flush is done. And it is sent only where somebody listens: who does
holds an advisory lock, shared, and a writer that finds it free asks again only after a while.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import psycopg

from holdfast.backends.postgres.commit import lock_number
from holdfast.backends.postgres.connections import Connections, Ear
from holdfast.backends.postgres.failures import translate
from holdfast.errors import HoldfastError

ASK_AGAIN_SECONDS = 1.0

# The lock is given back in the statement that takes it, so this works behind pgbouncer. Whoever meets another writer in
# that moment hints for nothing.
HINT = (
    "SELECT CASE WHEN pg_try_advisory_lock($1::bigint) THEN pg_advisory_unlock($1::bigint) IS NULL "
    "ELSE pg_notify($2::text, '') IS NOT NULL END"
)
WHO = "SELECT pg_backend_pid()"
LISTEN = "SELECT pg_try_advisory_lock_shared($1::bigint)"


class Hints:
    """The hints of one store: sent by `tell`, awaited by `news`."""

    def __init__(self, connections: Connections, schema: str) -> None:
        self._connections = connections
        self._lock = lock_number(b"listening", schema.encode("utf-8", "replace"))
        self._channel = f"holdfast_{self._lock & (2**64 - 1):016x}"
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
            is_heard = False
            with suppress(psycopg.Error, HoldfastError):
                is_heard = await self._sent()
            if not is_heard:
                self._quiet_until = time.monotonic() + ASK_AGAIN_SECONDS

    async def _sent(self) -> bool:
        async with self._connections.one() as connection:
            row: Any = await (await connection.execute(HINT, (self._lock, self._channel))).fetchone()
            return bool(row[0])

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
            row: Any = await (await connection.execute(WHO)).fetchone()
            if row[0] != connection.pgconn.backend_pid:
                connection.finish()
                return
            await connection.execute(LISTEN, (self._lock,))
            await connection.execute(f"LISTEN {self._channel}".encode())
        except BaseException:
            connection.finish()
            raise
        ear.take(connection)
