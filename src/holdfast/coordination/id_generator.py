"""The process's source of checkpoint ids."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from holdfast.model import ids

_NOISE = 8


class IdSource:
    """Makes ids that rise within this process, whatever the clock does. Safe to share between threads."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._last_ms = 0
        self._counter = 0
        # Randomness is fetched for many ids at once: each fetch gives up the interpreter lock, and
        # getting it back from a busy thread takes longer than all the rest.
        self._noise = b""
        self._used = 0  # of that
        os.register_at_fork(after_in_child=self._start_over)

    def new(self, tag: bytes | None = None) -> bytes:
        """Return a new id: with `tag` (of a tree's ids) for that tree, else for a new tree's first checkpoint."""
        with self._lock:
            now = self._now_ms()
            if now > self._last_ms:
                self._last_ms, self._counter = now, 0
            else:
                self._counter += 1
                if self._counter == ids.COUNTER_LIMIT:
                    self._last_ms, self._counter = self._last_ms + 1, 0
            start = self._used
            if start == len(self._noise):
                self._noise, start = os.urandom(_NOISE * 128), 0
            self._used = start + _NOISE
            return ids.make(self._last_ms, self._counter, self._noise[start : self._used], tag)

    def _start_over(self) -> None:
        """Reset in a forked child, which must neither reuse its parent's randomness nor wait for its lock."""
        self._lock = threading.Lock()
        self._noise, self._used = b"", 0
