"""The interface of a connection to PostgreSQL, for an event loop or for a thread."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from psycopg import pq

from holdfast.backends.postgres.notices import Notices

T = TypeVar("T")
Rows = list[tuple[Any, ...]]


class PostgresConnection(Protocol):
    """One connection, used by one caller at a time. Those of a thread never suspend: they block."""

    notices: Notices
    is_at_work: Callable[[], Awaitable[bool]] | None
    """While something is asked that may take long: whether the server is at it still (timeouts.py)."""

    @property
    def pgconn(self) -> pq.abc.PGconn: ...

    @property
    def closed(self) -> bool: ...

    async def fetch(self, query: bytes, values: Sequence[Any] = ()) -> Rows:
        """Return the rows of an answer."""

    async def fetch_raw(self, query: bytes, values: Sequence[Any]) -> bytes:
        """Return the one value of an answer, in the server's binary form."""

    async def run(self, query: bytes) -> None:
        """Run one statement or several, without an answer."""

    def finish(self) -> None:
        """Close it."""

    async def run_in_thread(self, call: Callable[[], T]) -> T:
        """Run another blocking call in the way this connection is used."""


class Links(Protocol):
    """The connections of one store."""

    def acquire(self) -> AbstractAsyncContextManager[PostgresConnection]:
        """Lend a live connection. Waits for one if all are in use."""

    async def connect(self) -> PostgresConnection:
        """Open a new connection, besides those that `acquire` lends."""

    def drop_idle(self) -> None:
        """Close the idle connections: after a failure they may lead to a server that is gone."""

    async def sleep(self, seconds: float) -> None: ...

    def close(self) -> None: ...


def leave_to_parent(socket: int, *, is_closed: bool) -> None:
    """Silence a connection in a forked child: whatever is sent on it must not reach the server."""
    if not is_closed:
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, socket)
        os.close(nowhere)


def raw_value(result: pq.abc.PGresult | None) -> bytes:
    """Return the one value of a result, in the server's binary form."""
    value = None if result is None else result.get_value(0, 0)
    assert value is not None
    return value
