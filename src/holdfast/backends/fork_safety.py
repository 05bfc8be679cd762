"""Fork safety: resources that a forked child must not take over from its parent.

`os.fork` copies memory, and one thread. A lock that another thread of the parent held stays held in
the child for good; a queue has the parent's work; a connection has one socket for both. So the
owner of such a resource registers here how it begins again in a child. `gunicorn --preload` and
`multiprocessing` fork while other threads save.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock, get_ident
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary, ref

T = TypeVar("T")


PATIENCE_SECONDS = (
    1.0  # that a fork waits for another thread's change to end: waiting for other processes may take long
)


class LockOwner(Protocol):
    """An owner of a lock: at the moment of a fork, its lock is free and its state is whole."""

    @property
    def fork_lock(self) -> Lock: ...

    def renew_fork_lock(self) -> None:
        """Replace the lock, in a child: a thread that the child lacks may hold the old one."""


_beginning_again: WeakKeyDictionary[object, Callable[[object], None]] = WeakKeyDictionary()
_guarded: dict[int, ref[LockOwner]] = {}  # by identity: copied in one step, even while other threads add to it
_held: dict[int, list[Lock]] = {}  # by the thread that forks: two may fork at a time
_left_to_parent: list[object] = []


def begin_again_in_child(owner: T, begin: Callable[[T], None]) -> None:
    """Call `begin(owner)` in each forked child, as long as the owner lives.

    `begin` must not refer to the owner.
    """
    _beginning_again[owner] = begin  # type: ignore[assignment]  # each is called with its own owner


def hold_while_forking(owner: LockOwner) -> None:
    """Hold the owner's lock during a fork, so that no other thread is in the middle of a change.

    A fork waits for the lock up to `PATIENCE_SECONDS`.
    """
    key = id(owner)
    _guarded[key] = ref(owner, lambda _: _guarded.pop(key, None))


def leave_to_parent(*objects: object) -> None:
    """Keep objects of the parent from being finalised in a child.

    A finalised loop or task would clean up and remove its sockets from a selector that both
    processes share.
    """
    _left_to_parent.extend(objects)


def _hold_locks() -> None:
    held = _held[get_ident()] = []
    for _, known in sorted(_guarded.copy().items()):
        owner = known()
        if owner is not None:
            lock = owner.fork_lock
            if lock.acquire(timeout=PATIENCE_SECONDS):
                held.append(lock)


def _release_locks() -> None:
    for lock in reversed(_held.pop(get_ident(), [])):
        lock.release()


def _begin_in_child() -> None:
    _held.clear()
    for known in list(_guarded.values()):
        if (guarded := known()) is not None:
            guarded.renew_fork_lock()
    for owner, begin in list(_beginning_again.items()):
        begin(owner)


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_hold_locks, after_in_parent=_release_locks, after_in_child=_begin_in_child)
