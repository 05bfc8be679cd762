"""Inline: answers on the caller's own thread, so that no event loop is needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from holdfast.backends.bridge import Bridge
from holdfast.backends.port import AtOnce, BlockingBackend, Commit
from holdfast.backends.stepping import run_inline
from holdfast.errors import StoreError

T = TypeVar("T")
INTERRUPTED = (
    "the thread that committed for others, too, was interrupted: what was to be saved is stored as a whole, or not at all. Look for "
    "it, or save again under the same checkpoint_id"
)

_Waiting = tuple[Commit, list[BaseException | None]]  # the outcome is an empty list until it is known


class ThreadTurn:
    """A lock that is awaited like any other, and blocks. Not its own thread, which may be interrupted while it leaves, and come
    again."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    async def __aenter__(self) -> None:
        await self  # type: ignore[misc]  # any iterator will do, it need not be a generator

    def __await__(self) -> Iterator[object]:
        """Takes the lock in one step of the interpreter. A call of `acquire` would be followed by another step, before which a
        signal may come: then nobody would give the lock back."""
        return iter(self.lock.acquire, True)

    async def __aexit__(self, *_: object) -> None:
        self.lock.release()


class Inline(Bridge):
    """Answers on the caller's thread. Threads that commit at the same time meet in a queue: whoever holds the lock
    leads and commits for all that wait."""

    def __init__(self, backend: BlockingBackend) -> None:
        super().__init__(backend)
        self._leading = threading.Lock()
        self._queue: SimpleQueue[_Waiting] = SimpleQueue()
        self._leading_turns = threading.Lock()
        self._turns: WeakValueDictionary[bytes, ThreadTurn] = WeakValueDictionary()
        self._listeners: set[threading.Event] = set()

    async def _call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return method(*args, **kwargs)

    def commit(self, commit: Commit) -> Awaitable[None]:
        outcome: list[BaseException | None] = []
        self._queue.put((commit, outcome))
        return self._outcome(commit, outcome)

    @property
    def at_once(self) -> AtOnce:
        return self

    def commit_at_once(self, commit: Commit) -> None:
        if self._leading.locked():
            run_inline(self._in_line(commit))
            return
        with self._leading:
            if not self._queue.empty():
                outcome: list[BaseException | None] = []
                self._queue.put((commit, outcome))
                self._lead()
            else:  # nobody else commits: then there is nobody to commit for, or to be told
                try:
                    outcome = self.backend.commit_all((commit,))
                finally:
                    self.committed += 1
                    if self._listeners:
                        self._tell()
        if outcome[0] is not None:
            raise outcome[0]

    async def _in_line(self, commit: Commit) -> None:
        await self.commit(commit)

    def turn(self, key: bytes) -> ThreadTurn:
        with self._leading_turns:
            known = self._turns.get(key)
            return self._turns.setdefault(key, ThreadTurn()) if known is None else known

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop

    async def wait_for_commit(self, seen: int, seconds: float) -> bool:
        news = threading.Event()
        self._listeners.add(news)
        hear = getattr(self.backend, "hear", None) if seconds > 0 else None
        stop = hear(self._hear) if hear is not None else None
        try:
            # Looked at after the listener is known, as those who commit count before they look for listeners: one of
            # the two sees the other.
            if self.committed == seen and not self._is_closed:
                news.wait(seconds)
        finally:
            self._listeners.discard(news)
            if stop is not None:
                stop()
        return not self._is_closed

    def _hear(self) -> None:
        self.committed += 1
        self._tell()

    def _tell(self) -> None:
        for news in tuple(self._listeners):
            news.set()

    async def _outcome(self, commit: Commit, mine: list[BaseException | None]) -> None:
        while not mine:
            with self._leading:  # who waits here is led by whoever holds it, or leads next
                if not mine:
                    self._lead()
                    if not mine:  # who led before was interrupted after taking it from the queue
                        self._queue.put((commit, mine))
        if mine[0] is not None:
            raise mine[0]

    def _lead(self) -> None:
        waiting = drain(self._queue)
        try:
            outcomes = self.backend.commit_all([commit for commit, _ in waiting])
        except Exception as error:
            outcomes = [error] * len(waiting)
            raise
        except BaseException:  # Ctrl-C is for the thread that it has interrupted
            outcomes = [StoreError(INTERRUPTED) for _ in waiting]
            raise
        finally:
            for (_, known), outcome in zip(waiting, outcomes, strict=True):
                known.append(outcome)
            self.committed += 1
            if self._listeners:
                self._tell()


def drain(queue: SimpleQueue[Any]) -> list[Any]:
    """What is in the queue now."""
    return [queue.get() for _ in range(queue.qsize())]
