"""The lock of a store: one for the threads of a process, one for the processes of a machine."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from holdfast.backends import fork_safety
from holdfast.backends.root_directory import RootDirectory
from holdfast.errors import StoreBusyError, StoreError

T = TypeVar("T")
SHORTEST_WAIT = 0.0002
LONGEST_WAIT = 0.005


class StoreLock:
    """A flock on one file of a tree; `timeout` in seconds is the wait before `StoreBusyError`.

    Only writers create the file. A reader that finds none reads without a lock, and once more if a
    writer came meanwhile.

    flock belongs to the open file, not to the thread: threads that share this object queue at a
    mutex first. A fork waits a moment for the mutex. The child has a mutex of its own, closes its
    parent's open file, and opens its own.
    """

    def __init__(self, tree: RootDirectory, name: str, timeout: float) -> None:
        self._tree = tree
        self._name = name
        self._path = tree.resolve(name)
        self.timeout = timeout
        self._mutex = threading.Lock()
        self._line: deque[object] = deque()  # threads that wait for the mutex, in order of arrival
        self._descriptor: int | None = None
        self._is_writable = False  # of the descriptor: some file systems need a writable one for an exclusive lock
        self._closed = False
        fork_safety.hold_while_forking(self)
        fork_safety.begin_again_in_child(self, StoreLock.after_fork)

    @property
    def fork_lock(self) -> threading.Lock:
        return self._mutex

    def renew_fork_lock(self) -> None:
        self._mutex = threading.Lock()
        self._line = deque()

    def hold(self, work: Callable[[], T], *, exclusive: bool) -> T:
        """Run `work` while no other process or thread writes or, if `exclusive`, reads.

        This is a function, not a context manager: Python can enter and leave only its own locks
        without a signal in between, which could keep ours locked for good.
        """
        deadline = time.monotonic() + self.timeout
        ticket = object()
        self._line.append(ticket)
        try:
            self._wait_for_threads(ticket, deadline)
            with self._mutex:
                self._line.remove(ticket)
                return self._hold(work, deadline, exclusive=exclusive)
        finally:
            with suppress(ValueError):  # it has left the line already, or is in a forked child
                self._line.remove(ticket)

    def _hold(self, work: Callable[[], T], deadline: float, *, exclusive: bool) -> T:
        """Run `work` under the flock. The caller holds the mutex."""
        import fcntl

        if self._closed:  # by another thread, while this one waited
            raise StoreError(f"{self._path} was closed: open the store again to go on")
        while True:
            descriptor = self._open_file(exclusive)
            if descriptor is None:
                found = self._try_without_lock(work)
                if found is None:
                    continue
                return found[0]
            try:
                self._lock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, deadline)
                if self._is_at_its_path(descriptor):
                    return work()
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._let_go()  # the store was replaced meanwhile, and has another lock

    def _try_without_lock(self, work: Callable[[], T]) -> tuple[T] | None:
        """Run `work` without a lock file, and so without a writer; return None if there is one now."""
        try:
            found = work()
        except Exception:
            if self._has_file():
                return None
            raise
        return None if self._has_file() else (found,)

    def _has_file(self) -> bool:
        try:
            self._tree.info(self._name)
        except FileNotFoundError:
            return False
        return True

    def _is_at_its_path(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self._tree.info(self._name), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _wait_for_threads(self, ticket: object, deadline: float) -> None:
        """Wait until the ticket is the first in line and the mutex is free.

        A thread that saves without a pause joins the end of the line each time, so it starves no
        other.
        """
        wait = SHORTEST_WAIT
        while (is_behind := self._line[0] is not ticket) or self._mutex.locked():
            if time.monotonic() > deadline:
                raise self._make_busy_error()
            time.sleep(wait)
            wait = min(wait * 1.5, LONGEST_WAIT) if is_behind else SHORTEST_WAIT

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
                raise self._make_busy_error()
            time.sleep(wait)
            wait = min(wait * 1.5, LONGEST_WAIT)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._let_go()

    def _open_file(self, exclusive: bool) -> int | None:
        """Return the open file; None if it is missing and not to be created."""
        if exclusive and not self._is_writable:
            self._let_go()
        if self._descriptor is None:
            try:
                self._descriptor, _ = self._tree.open_file(self._name, os.O_RDWR | os.O_CREAT if exclusive else 0)
            except FileNotFoundError:
                if exclusive:
                    raise
                os.close(self._tree.open_folder(""))  # raises if the store itself is gone
                return None
            self._is_writable = exclusive
        return self._descriptor

    def _let_go(self) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
            self._is_writable = False

    def _make_busy_error(self) -> StoreBusyError:
        return StoreBusyError(
            f"{self._path} was held by others for {self.timeout:g} seconds: a process that uses this store is stuck "
            f"(`fuser {self._path}` names it). Nothing was changed; try again when it has ended"
        )

    def after_fork(self) -> None:
        self._let_go()  # closing is not unlocking: the parent keeps what it holds
