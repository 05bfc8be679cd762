"""Who may read, who may write: one lock for the threads of a process, one for the processes of a machine."""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from holdfast.backends.files.disk import FILE_MODE
from holdfast.errors import StoreError

T = TypeVar("T")
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

    def hold(self, work: Callable[[], T], *, exclusive: bool) -> T:
        """Does something while nobody else writes or, if `exclusive`, reads.

        A function and no context manager: of these, Python enters and leaves only a lock of its own so that no signal can come
        in between, and keep it locked for good.
        """
        import fcntl

        deadline = time.monotonic() + self._timeout
        self._wait_for_threads(deadline)
        with self._mutex:
            if self._closed:  # by another thread, while this one waited
                raise StoreError(f"{self._path} was closed: open the store again to go on")
            descriptor = self._opened()
            try:
                self._lock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, deadline)
                return work()
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _wait_for_threads(self, deadline: float) -> None:
        """Until the mutex is free, as far as one can see: another thread may be quicker, and is then waited for."""
        wait = SHORTEST_WAIT
        while self._mutex.locked():
            if time.monotonic() > deadline:
                raise self._too_long()
            time.sleep(wait)
            wait = min(wait * 1.5, LONGEST_WAIT)

    def _lock(self, descriptor: int, kind: int, deadline: float) -> None:
        import fcntl

        wait = SHORTEST_WAIT
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            if time.monotonic() > deadline:
                raise self._too_long()
            time.sleep(wait)
            wait = min(wait * 1.5, LONGEST_WAIT)

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
