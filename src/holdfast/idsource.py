"""The process's source of checkpoint ids."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.model import ids


class IdSource:
    """Makes ids that rise within this process, whatever the clock does. Safe to share between threads."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._last_ms = 0
        self._counter = 0

    def new(self, tag: bytes | None = None) -> bytes:
        """A new id; with `tag` (of a tree's ids) for that tree, without it for the first checkpoint of a new one."""
        with self._lock:
            now = self._now_ms()
            if now > self._last_ms:
                self._last_ms, self._counter = now, 0
            else:
                self._counter += 1
                if self._counter == ids.COUNTER_LIMIT:
                    self._last_ms, self._counter = self._last_ms + 1, 0
            ms, counter = self._last_ms, self._counter
        return ids.make(ms, counter, tag)
