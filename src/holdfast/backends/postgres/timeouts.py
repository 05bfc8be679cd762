"""Silent servers: how long to wait for one, and what to do then.

Before `timeout` is over, the server is asked to cancel. That ends a statement that waits for
another program's lock, and changes nothing. A server that is stopped, or behind a network that
drops everything, does not answer: the connection is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import capabilities

T = TypeVar("T")
CANCEL_SECONDS = 1.0  # at most, to ask the server to cancel; and as long again for its answer


class SilentError(Exception):
    """The server was silent for too long; the connection is unchanged."""


class NoAnswerError(psycopg.OperationalError):
    """The server did not even answer a request to cancel. The connection is closed."""


class Quiet(Protocol):
    """A connection that waits for an answer."""

    timeout: float
    is_at_work: Callable[[], Awaitable[bool]] | None

    async def ask_to_cancel(self, seconds: float) -> None: ...

    def finish(self) -> None: ...


def quiet_seconds(timeout: float) -> float:
    """Return how long a server may be silent before it is asked to cancel, within `timeout`."""
    return timeout - 2 * _cancel_seconds(timeout)


def _cancel_seconds(timeout: float) -> float:
    return min(CANCEL_SECONDS, timeout / 4)


async def insist(connection: Quiet, wait: Callable[[float], Awaitable[T]]) -> T:
    """Return what `wait(seconds)` gives after a first silence, or raise `NoAnswerError`.

    Long work may continue as long as the server is busy with it. Anything else is cancelled or
    abandoned.
    """
    while connection.is_at_work is not None and await connection.is_at_work():
        with suppress(SilentError):
            return await wait(connection.timeout)
    seconds = _cancel_seconds(connection.timeout)
    if capabilities.has_cancel_safe():  # an older libpq would wait forever for the server's answer to that
        with suppress(psycopg.Error):
            await connection.ask_to_cancel(seconds)
    try:
        return await wait(seconds)
    except SilentError:
        connection.finish()
        raise NoAnswerError(f"no answer within {connection.timeout:g} s") from None


class Steps:
    """The driver's generator for waiting, which can be left when the server is silent, and resumed."""

    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self._steps = steps
        self._wanted: Any = None  # the event that it waits for, None before it has begun

    def run_within(self, seconds: float) -> Generator[Any, Any, Any]:
        """Run the same generator; raise `SilentError` when nothing was ready for `seconds`."""
        until = monotonic() + seconds
        try:
            if self._wanted is None:
                self._wanted = next(self._steps)
            while True:
                ready = yield self._wanted
                if ready:
                    until = monotonic() + seconds
                elif monotonic() >= until:
                    raise SilentError
                self._wanted = self._steps.send(ready)
        except StopIteration as end:
            return end.value
