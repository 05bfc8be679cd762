"""What the bridges have in common whose callers run in event loops: how these take turns, wait, and hear of commits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from holdfast.backends.bridge import Bridge

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class LoopBridge(Bridge):
    """Its callers run in event loops, in one or in several."""

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self._turns: WeakValueDictionary[tuple[int, bytes], asyncio.Lock] = WeakValueDictionary()
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()

    def turn(self, key: bytes) -> AbstractAsyncContextManager[object]:
        import asyncio

        # A lock serves one event loop, and is kept only while somebody uses it.
        return self._turns.setdefault((id(asyncio.get_running_loop()), key), asyncio.Lock())

    async def apart(self, call: Callable[[], T]) -> T:
        import asyncio

        running = asyncio.ensure_future(asyncio.to_thread(call))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # The thread goes on all the same, with files that whoever was cancelled would close: it is waited for.
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            with suppress(BaseException):  # nobody asks any more what came of it
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
            # As in `Inline`: counting comes before looking for listeners, listening before looking at the count.
            if self.committed == seen and not self._is_closed:
                await listener[1]
        finally:
            self._listeners.discard(listener)
            timer.cancel()
        return not self._is_closed

    def _count(self) -> None:
        self.committed += 1
        if self._listeners:
            self._tell()

    def _tell(self) -> None:
        for loop, future in tuple(self._listeners):
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:  # the loop was closed, and whoever listened there is gone with it
                self._listeners.discard((loop, future))


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
