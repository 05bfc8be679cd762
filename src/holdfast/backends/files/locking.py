"""Who may read, who may write: one lock for the threads of a process, one for the processes of a machine."""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.backends.files.disk import FILE_MODE
from holdfast.errors import StoreError

SHORTEST_WAIT = 0.0002
LONGEST_WAIT = 0.005


class StoreLock:
    """A flock on one file. `timeout` in seconds is how long to wait for others before `StoreError`.

    flock belongs to the open file, not to the thread: threads that share this object queue up at a mutex first. After
    a fork the child lets go of its parent's open file (and of a mutex that some thread of the parent may hold), and
    opens its own.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._mutex = threading.Lock()
        self._descriptor: int | None = None
        self._closed = False
        _ALL.add(self)

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._held(exclusive=False):
            yield

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._held(exclusive=True):
            yield

    @contextmanager
    def _held(self, *, exclusive: bool) -> Iterator[None]:
        import fcntl

        deadline = time.monotonic() + self._timeout
        if not self._mutex.acquire(timeout=self._timeout):
            raise self._too_long()
        try:
            if self._closed:  # by another thread, while this one waited
                raise StoreError(f"{self._path} was closed: open the store again to go on")
            descriptor = self._opened()
            wanted = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
            wait = SHORTEST_WAIT
            while True:
                try:
                    fcntl.flock(descriptor, wanted)
                    break
                except OSError as error:
                    if error.errno not in (errno.EAGAIN, errno.EACCES):
                        raise
                if time.monotonic() > deadline:
                    raise self._too_long()
                time.sleep(wait)
                wait = min(wait * 1.5, LONGEST_WAIT)
            try:
                yield
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            self._mutex.release()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._let_go()

    def _opened(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        return self._descriptor

    def _let_go(self) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def _too_long(self) -> StoreError:
        return StoreError(
            f"{self._path} was held by others for {self._timeout:g} seconds: a process that uses this store is stuck "
            f"(`fuser {self._path}` names it). Nothing was changed; try again when it has ended"
        )

    def after_fork(self) -> None:
        self._mutex = threading.Lock()
        self._let_go()  # closing is not unlocking: the parent keeps what it holds


_ALL: weakref.WeakSet[StoreLock] = weakref.WeakSet()


def _in_child() -> None:
    for lock in list(_ALL):
        lock.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
