"""Writeback during a restore: written files are synced while more are being written.

A system with memory to spare would begin only at the end, when the caller waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Self

ENOUGH = 64_000_000  # bytes, to begin with it


class Writeback:
    """Calls `sync` in a thread each time that much was written. There is no thread as long as it was not.

    It is no promise of anything before `sync_all`. But what fails here is raised, by the next call
    or by the last: the system may say only once that something could not be written.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._size = 0
        self._threads: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=kind is None)  # an error is raised without waiting for the disk

    def finish(self) -> None:
        """Wait for the syncs in progress."""
        if self._running is not None:
            self._running.result()

    def sync_all(self, meanwhile: Callable[[], None]) -> None:
        """Sync everything, and call `meanwhile`: at the same time, if there is a thread."""
        if self._threads is None:
            meanwhile()
            self._sync()
            return
        future = self._threads.submit(meanwhile)
        try:
            self.finish()
            self._sync()
        finally:
            future.exception()  # it has ended before an error is raised
        future.result()

    def add(self, size: int) -> None:
        """Count bytes that were written, and sync in the thread once they are enough."""
        self._size += size
        if self._size < ENOUGH or (self._running is not None and not self._running.done()):
            return
        self.finish()
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(2, "holdfast-writeback")  # one of them for `meanwhile`
        self._size = 0
        self._running = self._threads.submit(self._sync)
