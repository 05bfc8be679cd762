"""Base class of the bridges for event loops: locks, waiting, and listeners for commits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from holdfast.backends import fork_safety
from holdfast.backends.bridge.base import Bridge
from holdfast.backends.session_queue import LoopFairLock

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class AsyncioBridge(Bridge):
    """A bridge whose callers run in one or several event loops."""

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self._begin()
        fork_safety.begin_again_in_child(self, _begin_again)

    def _begin(self) -> None:
        """Begin without waiters: at first, and in a forked child, which lacks the tasks of its parent."""
        self._turns: WeakValueDictionary[tuple[int, bytes], asyncio.Lock] = WeakValueDictionary()
        self._fair_turns: WeakValueDictionary[tuple[int, bytes], asyncio.Lock] = WeakValueDictionary()
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()

    def lock(self, key: bytes) -> AbstractAsyncContextManager[object]:
        import asyncio

        # A lock serves one event loop, and is kept only while it is in use.
        return self._turns.setdefault((id(asyncio.get_running_loop()), key), asyncio.Lock())

    def fair_lock(self, key: bytes, seconds: float) -> AbstractAsyncContextManager[bool]:
        import asyncio

        lock = self._fair_turns.setdefault((id(asyncio.get_running_loop()), key), asyncio.Lock())
        return LoopFairLock(lock, seconds)

    async def run_in_thread(self, call: Callable[[], T]) -> T:
        import asyncio

        running = asyncio.ensure_future(asyncio.to_thread(call))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # The thread keeps running, with files that the cancelled caller would close: wait for it.
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            with suppress(BaseException):  # the result is no longer wanted
                running.result()
            raise

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    async def wait_for_commit(self, seen: int, seconds: float) -> bool:
        from asyncio import get_running_loop

        loop = get_running_loop()
        listener = loop, loop.create_future()
        timer = loop.call_later(seconds, _wake, listener[1])
        self._listeners.add(listener)
        try:
            # As in `InlineBridge`: counting comes before looking for listeners, listening before looking at the count.
            if self.committed == seen and not self._is_closed:
                await listener[1]
        finally:
            self._listeners.discard(listener)
            timer.cancel()
        return not self._is_closed

    def count_commit(self) -> None:
        self.committed += 1
        if self._listeners:
            self._notify_waiters()

    def _notify_waiters(self) -> None:
        for loop, future in tuple(self._listeners):
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:  # the loop was closed, and its listeners with it
                self._listeners.discard((loop, future))


def _begin_again(bridge: AsyncioBridge) -> None:
    fork_safety.leave_to_parent(dict(bridge.__dict__))  # with the loops, tasks and futures that it refers to
    bridge._begin()  # the method of its class


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
