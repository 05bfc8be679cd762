"""So many may use something at a time; who finds no place free waits in line. For threads, and for the tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque


class ThreadPlaces:
    """A semaphore that is fair. A place that is given back belongs to the one who has waited longest from that moment on: a
    thread that takes one again at once would otherwise nearly always be there before the one that has to be woken first, and
    who asks without a pause would keep out all others."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[threading.Lock] = deque()  # each held, until it is let go by who hands over a place
        self._changing = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._waiting)

    def take(self, timeout: float) -> bool:
        """Whether there was a place, now or within `timeout` seconds."""
        with self._changing:
            if self._free:  # then nobody waits
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
        """Whether it still stood in line. If not, a place was handed over to it in the meantime."""
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
    """A semaphore that costs nothing as long as nobody waits."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_at_once(self) -> bool:
        """Whether there was a free place, which is the caller's now. Nobody waits as long as there is one."""
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
