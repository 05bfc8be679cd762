"""The sessions that several writers save to, and the wait before a commit to one of them.

Within a process, saves that had a conflict wait in a queue, and new saves join it: so they are made
in the order of the calls. Between processes, where they can't take turns (`Backend.process_lock`),
each conflict widens the window that a wait is drawn from, and each success narrows it. So the
processes that compete for a session settle at about as many attempts as the store can carry out,
however many they are. A save that had conflicts draws from a part of the window, the smaller the
more there were: the oldest save comes first, nearly always.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

SHORTEST_SECONDS = 0.001
LONGEST_SECONDS = 2.0
LONGEST_ATTEMPT = 0.05  # the most that counts of an attempt's duration: a longer one has waited for a lock itself
WIDER, NARROWER = 1.5, 0.7
SESSIONS_REMEMBERED = 1024


class Contention:
    """The sessions that several writers save to, as a process knows them. Threads may share one."""

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self._waiting: dict[bytes, int] = {}  # saves of this process in line
        # Of sessions that other processes write to: in seconds, and the last reading that was
        # refused.
        self._windows: OrderedDict[bytes, tuple[float, object]] = OrderedDict()

    def has_line(self, session: bytes) -> bool:
        """Return whether a save must join the queue, because others wait."""
        return session in self._waiting or session in self._windows

    def is_shared(self, session: bytes) -> bool:
        """Return whether this process recently lost a commit to the session to another process."""
        return session in self._windows

    @contextmanager
    def count_waiting(self, session: bytes) -> Iterator[None]:
        """Count a save as waiting in the queue."""
        with self._lock:
            self._waiting[session] = self._waiting.get(session, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                left = self._waiting.pop(session, 1) - 1
                if left > 0:
                    self._waiting[session] = left

    def pause(self, session: bytes, conflicts: int) -> float:
        """Return how many seconds to wait before an attempt, after so many conflicts of the same save."""
        window, _ = self._windows.get(session, (0.0, None))
        return random.random() * window / (1 + conflicts)  # noqa: S311 - it spreads attempts

    def widen(self, session: bytes, reading: object, attempt_seconds: float) -> None:
        """Note a conflict of a commit that was built on that reading of the store.

        All commits built on the same reading are refused together: that counts once.
        """
        least = 2 * min(max(attempt_seconds, SHORTEST_SECONDS), LONGEST_ATTEMPT)
        with self._lock:
            window, of_reading = self._windows.get(session, (0.0, None))
            if of_reading is not reading:
                self._windows[session] = min(max(window * WIDER, least), LONGEST_SECONDS), reading
            if len(self._windows) > SESSIONS_REMEMBERED:
                self._windows.popitem(last=False)

    def narrow(self, session: bytes) -> None:
        with self._lock:
            window, reading = self._windows.pop(session, (0.0, None))
            if window * NARROWER >= SHORTEST_SECONDS:
                self._windows[session] = window * NARROWER, reading
