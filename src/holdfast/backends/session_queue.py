"""Fair locks: the writers of one process that compete for a session go first come, first served.

A fair lock spares conflicts, it does not prevent them: every commit is compared with the store,
with or without the lock. So a lost holder (Ctrl-C came between two instructions) is passed over
after a while.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

PATIENCE_SECONDS = 5.0


class _Waiter(NamedTuple):
    ticket: object
    thread: int
    handed_over: threading.Lock  # held until it is this waiter's turn


class ThreadQueue:
    """One turn at a time for threads, first come, first served."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._holder: object | None = None
        self._thread = 0  # of the holder
        self._waiting: deque[_Waiter] = deque()
        self._handed_over_at = 0.0

    def take(self, ticket: object, seconds: float) -> bool:
        """Return whether the turn came within `seconds`. The ticket then has it until `give_back`."""
        deadline = time.monotonic() + seconds
        mine = _Waiter(ticket, threading.get_ident(), threading.Lock())
        mine.handed_over.acquire()
        try:
            with self._changing:
                # A thread that holds it already was interrupted before it could give it back.
                if self._holder is None or self._thread == mine.thread:
                    self._hand_to(mine)
                    return True
                self._waiting.append(mine)
            while (left := deadline - time.monotonic()) > 0:
                if mine.handed_over.acquire(timeout=min(left, PATIENCE_SECONDS)) or self._pass_over(mine):
                    return True
        except BaseException:  # Ctrl-C
            self._leave(mine)
            raise
        self._leave(mine)
        return False

    def give_back(self, ticket: object) -> None:
        with self._changing:
            if self._holder is ticket:
                self._hand_on()

    def _pass_over(self, mine: _Waiter) -> bool:
        """Return whether this waiter, the first in line, takes over from a holder that kept it too long."""
        with self._changing:
            is_late = time.monotonic() - self._handed_over_at >= PATIENCE_SECONDS
            if is_late and self._waiting and self._waiting[0] is mine:
                self._hand_on()
            return self._holder is mine.ticket

    def _leave(self, mine: _Waiter) -> None:
        """Leave the line; hand the turn on if it came in the meantime."""
        with self._changing:
            if self._holder is mine.ticket:
                self._hand_on()
            elif mine in self._waiting:
                self._waiting.remove(mine)

    def _hand_on(self) -> None:
        self._holder = None
        if self._waiting:
            first = self._waiting.popleft()
            self._hand_to(first)
            first.handed_over.release()

    def _hand_to(self, waiter: _Waiter) -> None:
        self._holder, self._thread = waiter.ticket, waiter.thread
        self._handed_over_at = time.monotonic()


class ThreadFairLock:
    """The turn of one thread, as an `async with` block that blocks: True if it came in time."""

    def __init__(self, queue: ThreadQueue, seconds: float) -> None:
        self._queue = queue
        self._seconds = seconds

    async def __aenter__(self) -> bool:
        return self._queue.take(self, self._seconds)

    async def __aexit__(self, *_: object) -> None:
        self._queue.give_back(self)


class LoopFairLock:
    """The turn of one task, as an `async with` block: True if it came in time.

    `asyncio.Lock` is fair by itself.
    """

    def __init__(self, lock: asyncio.Lock, seconds: float) -> None:
        self._lock = lock
        self._seconds = seconds
        self._is_held = False

    async def __aenter__(self) -> bool:
        import asyncio

        try:
            async with asyncio.timeout(max(self._seconds, 0)):
                self._is_held = await self._lock.acquire()
        except TimeoutError:
            return False
        return True

    async def __aexit__(self, *_: object) -> None:
        if self._is_held:
            self._lock.release()
