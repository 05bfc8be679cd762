"""A fair semaphore for threads and for asyncio tasks."""

from __future__ import annotations

import asyncio
import threading
from collections import deque


class ThreadPlaces:
    """A fair semaphore for threads.

    A released place belongs at once to the thread that has waited longest. Otherwise a thread that
    takes one again would nearly always be faster than the one that has to be woken, and would
    starve all others.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[threading.Lock] = deque()  # each held, until a place is handed over to it
        self._changing = threading.Lock()

    @property
    def waiting(self) -> int:
        """Return the number of waiting threads."""
        return len(self._waiting)

    def take(self, timeout: float) -> bool:
        """Return whether there was a place, now or within `timeout` seconds."""
        with self._changing:
            if self._free:  # then no thread waits
                self._free -= 1
                return True
            handed_over = threading.Lock()
            handed_over.acquire()
            self._waiting.append(handed_over)
        try:
            if handed_over.acquire(timeout=timeout):
                return True
        except BaseException:  # Ctrl-C
            if not self._leave(handed_over):
                self.give_back()
            raise
        return not self._leave(handed_over)

    def _leave(self, handed_over: threading.Lock) -> bool:
        """Leave the line; return False if a place was handed over in the meantime."""
        with self._changing:
            try:
                self._waiting.remove(handed_over)
            except ValueError:
                return False
            return True

    def give_back(self) -> None:
        with self._changing:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


class LoopPlaces:
    """A fair semaphore for the tasks of an event loop, free of cost while no task waits."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_at_once(self) -> bool:
        """Take a free place and return whether there was one. No task waits as long as there is one."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled():  # it was ours already when we were cancelled
                self.give_back()
            raise

    def give_back(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():  # cancelled
                place.set_result(None)
                return
        self._free += 1
