"""What a connection to PostgreSQL is to those who use it, whoever waits for its answers: an event loop or a thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from psycopg import pq

T = TypeVar("T")
Rows = list[tuple[Any, ...]]


class Prepared:
    """What was prepared on one connection (asking.py)."""

    __slots__ = ("asked", "may_be", "names")

    def __init__(self) -> None:
        self.asked = 0
        self.may_be: bool | None = None  # None: not looked at yet
        self.names: dict[bytes, bytes] = {}


class Link(Protocol):
    """One connection, the caller's own meanwhile. Those of a thread never suspend: they block."""

    prepared: Prepared

    @property
    def pgconn(self) -> pq.abc.PGconn: ...

    @property
    def closed(self) -> bool: ...

    async def until_answered(self) -> None:
        """Sends what is not sent yet, and returns when the next result is there."""

    async def fetch(self, query: bytes, values: Sequence[Any] = ()) -> Rows:
        """The rows of the answer, by the driver."""

    async def run(self, query: bytes) -> None:
        """Carries out what has no answer: one statement or several."""

    async def aside(self, call: Callable[[], T]) -> T:
        """Something else that blocks, in the way in which this connection is used."""


class Links(Protocol):
    """The connections of one store."""

    def one(self) -> AbstractAsyncContextManager[Link]:
        """A live connection. Waits for one if all are in use."""

    def drop_idle(self) -> None:
        """Closes the idle connections: after a failure they may lead to a server that is gone."""

    async def sleep(self, seconds: float) -> None: ...

    def close(self) -> None: ...


def leave_to_parent(socket: int, *, is_closed: bool) -> None:
    """In a forked child: whatever is said on this connection goes nowhere, least of all to the server."""
    if not is_closed:
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, socket)
        os.close(nowhere)
