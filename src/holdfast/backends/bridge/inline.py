"""Bridge that answers on the caller's own thread, so that no event loop is needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from holdfast.backends import fork_safety
from holdfast.backends.bridge.base import Bridge
from holdfast.backends.commit_outcomes import fail_each, separate
from holdfast.backends.port import BlockingBackend, Commit
from holdfast.backends.session_queue import ThreadFairLock, ThreadQueue
from holdfast.errors import StoreError

T = TypeVar("T")
INTERRUPTED = (
    "the thread that committed for others, too, was interrupted: what was to be saved is stored as a whole, or not at "
    "all. Look for it, or save again under the same checkpoint_id"
)

_Waiting = tuple[Commit, list[BaseException | None]]  # the outcome is an empty list until it is known


class ThreadKeyLock:
    """A reentrant lock that is awaited like any other, and blocks.

    It does not block its own thread, which a signal may interrupt while it leaves, and which may
    then enter again.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()

    async def __aenter__(self) -> None:
        await self  # type: ignore[misc]  # any iterator will do, it need not be a generator

    def __await__(self) -> Iterator[object]:
        """Take the lock in one step of the interpreter.

        A call of `acquire` would be followed by another step. A signal in between would leave the
        lock held for good.
        """
        return iter(self.lock.acquire, True)

    async def __aexit__(self, *_: object) -> None:
        self.lock.release()


class InlineBridge(Bridge):
    """A bridge that answers on the caller's thread.

    Threads that commit at the same time meet in a queue: the holder of the lock leads, and commits
    for all that wait.
    """

    def __init__(self, backend: BlockingBackend) -> None:
        super().__init__(backend)
        self._begin()
        fork_safety.begin_again_in_child(self, InlineBridge._begin)

    def _begin(self) -> None:
        self._leading = threading.Lock()
        self._queue: SimpleQueue[_Waiting] = SimpleQueue()
        self._leading_turns = threading.Lock()
        self._turns: WeakValueDictionary[bytes, ThreadKeyLock] = WeakValueDictionary()
        self._fair_turns: WeakValueDictionary[bytes, ThreadQueue] = WeakValueDictionary()
        self._listeners: set[threading.Event | _Relay] = set()

    async def _call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return method(*args, **kwargs)

    def commit(self, commit: Commit) -> Awaitable[None]:
        outcome: list[BaseException | None] = []
        self._queue.put((commit, outcome))
        return self._outcome(commit, outcome)

    def lock(self, key: bytes) -> ThreadKeyLock:
        with self._leading_turns:
            known = self._turns.get(key)
            return self._turns.setdefault(key, ThreadKeyLock()) if known is None else known

    def fair_lock(self, key: bytes, seconds: float) -> ThreadFairLock:
        with self._leading_turns:
            known = self._fair_turns.get(key)
            return ThreadFairLock(self._fair_turns.setdefault(key, ThreadQueue()) if known is None else known, seconds)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop

    async def wait_for_commit(self, seen: int, seconds: float) -> bool:
        event = threading.Event()
        self._listeners.add(event)
        listen = getattr(self.backend, "listen", None) if seconds > 0 else None
        stop = listen(self._hear) if listen is not None else None
        try:
            # Checked after the listener is registered, as committers count before they look for listeners: one
            # of the two sees the other.
            if self.committed == seen and not self._is_closed:
                event.wait(seconds)
        finally:
            self._listeners.discard(event)
            if stop is not None:
                stop()
        return not self._is_closed

    @contextmanager
    def relayed_to(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call a function, of any thread, after each commit that is made through this bridge."""
        relay = _Relay(listener)
        self._listeners.add(relay)
        try:
            yield
        finally:
            self._listeners.discard(relay)

    def _hear(self) -> None:
        self.committed += 1
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        for event in tuple(self._listeners):
            event.set()

    async def _outcome(self, commit: Commit, mine: list[BaseException | None]) -> None:
        while not mine:
            with self._leading:  # a thread that waits here is led by the holder, or leads next
                if not mine:
                    self._lead()
                    if not mine:  # the previous leader was interrupted after taking it from the queue
                        self._queue.put((commit, mine))
        if mine[0] is not None:
            raise mine[0]

    def _lead(self) -> None:
        waiting = drain(self._queue)
        try:
            outcomes = separate(self.backend.commit_all([commit for commit, _ in waiting]))
        except Exception as error:
            outcomes = fail_each(error, len(waiting))
            raise
        except BaseException:  # Ctrl-C is for the thread that it interrupted
            outcomes = [StoreError(INTERRUPTED) for _ in waiting]
            raise
        finally:
            for (_, known), outcome in zip(waiting, outcomes, strict=True):
                known.append(outcome)
            self.committed += 1
            if self._listeners:
                self._notify_waiters()


class _Relay:
    """A listener that passes the news on."""

    def __init__(self, listener: Callable[[], None]) -> None:
        self.set = listener


def drain(queue: SimpleQueue[Any]) -> list[Any]:
    """Take everything that is in the queue now."""
    return [queue.get() for _ in range(queue.qsize())]
