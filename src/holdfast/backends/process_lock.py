"""A lock between processes of one machine that compete for a session of a store.

The lock is a flock on the store's directory: it needs no file, and ends with its process. Like
`session_queue.py` it spares conflicts and excludes no writer: every commit is compared with the
store. A writer that does not get the lock within a part of its time continues without it. A process
that has waited longer polls more often, and so nearly always comes first.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

PATIENCE = 2 / 3  # of the seconds that are left
LONGEST_POLL, SHORTEST_POLL = (
    0.02,
    0.006,
)  # maximum seconds between two polls of the lock: for newcomers, and after a long wait


class ProcessLock:
    """The lock as an `async with` block: True if no other process has the turn."""

    def __init__(
        self, directory: str | None, seconds: float, waited: float, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """Prepare to wait: `seconds` are left, and `waited` have passed. Without a directory there is no lock."""
        self._directory = directory
        self._deadline = time.monotonic() + seconds * PATIENCE
        self._began = time.monotonic() - waited
        self._sleep = sleep
        self._descriptor: int | None = None

    async def __aenter__(self) -> bool:
        if self._directory is None:
            return False
        try:
            import fcntl

            self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (ImportError, OSError):  # on Windows, or without such a directory
            return False
        try:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                if time.monotonic() >= self._deadline:
                    return False
                longest = max(LONGEST_POLL / (1 + time.monotonic() - self._began), SHORTEST_POLL)
                await self._sleep(random.random() * longest)  # noqa: S311 - it spreads the looks
        except OSError:  # a file system without locks
            return False
        except BaseException:
            self.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give it back. Who may be interrupted by Ctrl-C calls this after the block once more.

        The signal may come as `__aexit__` begins, and a lock that is kept delays every later save.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            import fcntl

            # Closing alone is not enough: a child that was forked meanwhile has the same open file.
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
