"""Makes a backend whose verbs are coroutines usable where there is no event loop: on the caller's thread, if the backend can
do that; else in an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from holdfast.backends.port import AsyncBackend, BlockingBackend, Capabilities
from holdfast.backends.stepping import run_inline
from holdfast.errors import StoreError

T = TypeVar("T")
LAST_SECONDS = 5


def blocking(backend: AsyncBackend) -> BlockingBackend:
    """The same backend with blocking verbs, for any thread."""
    without_loop = getattr(backend, "without_loop", None)
    return in_a_loop(backend) if without_loop is None else cast("BlockingBackend", _OnThread(backend, without_loop()))


def in_a_loop(backend: AsyncBackend) -> BlockingBackend:
    """The same in an event loop of its own, whatever else the backend can do."""
    return cast("BlockingBackend", _InLoop(backend))


def awaited(backend: object) -> AsyncBackend | None:
    """The backend that this one makes blocking; None if it is no such one."""
    return backend._backend if isinstance(backend, _Blocking) else None


class _Blocking:
    """Each verb blocks until its coroutine is done."""

    def __init__(self, backend: AsyncBackend) -> None:
        self._backend = backend
        self._loop = _LoopThread()

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._backend.capabilities, awaitable=False)

    def hear(self, tell: Callable[[], None]) -> Callable[[], object]:
        """Calls `tell` once there may be news from elsewhere, unless what this returns is called before."""
        news = getattr(self._backend, "news", None)
        if news is None:
            return lambda: None

        async def listen() -> None:
            with suppress(StoreError):  # then it is found by looking
                await news()
                tell()

        return self._loop.begin(listen()).cancel


class _InLoop(_Blocking):
    """Each verb runs in a loop of this object's own, in a daemon thread that is started at the first call."""

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        method = getattr(self._backend, verb)
        if verb == "ask_to_collect":  # the one that is no coroutine
            return method  # type: ignore[no-any-return]  # verbs have no types here

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._loop.run(method(*args, **kwargs))

        return call

    def close(self) -> None:
        self._loop.run(self._backend.close())
        self._loop.stop()


class _OnThread(_Blocking):
    """Each verb is stepped on the caller's thread. Only who waits for news needs a loop in a thread: that listens."""

    def __init__(self, backend: AsyncBackend, without_loop: AsyncBackend) -> None:
        super().__init__(backend)
        self._without_loop = without_loop

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        method = getattr(self._without_loop, verb)

        def call(*args: Any, **kwargs: Any) -> Any:
            return run_inline(method(*args, **kwargs))

        setattr(self, verb, call)  # the next time it is found without this
        return call

    def close(self) -> None:
        # Closing one closes both. Where a loop listens, it must let go of what it listens to before that is gone.
        if self._loop.is_running:
            self._loop.run(self._backend.close())
        else:
            run_inline(self._without_loop.close())
        self._loop.stop()


class _LoopThread:
    """An event loop in a daemon thread, which is started when something is to run in it."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process: int | None = None  # a forked child has no threads of its parent: it needs a loop of its own

    @property
    def is_running(self) -> bool:
        return self._loop is not None and self._process == os.getpid()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = self.begin(coroutine)
        try:
            return future.result()
        except CancelledError as error:
            raise StoreError("the store was closed while it was asked: open a new client") from error

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        with self._starting:  # so that what is asked for comes before a `stop`, or after it in a new loop
            return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def stop(self) -> None:
        with self._starting:
            if self._loop is not None and self.is_running:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or not self.is_running:
            self._loop = asyncio.new_event_loop()
            self._process = os.getpid()
            thread = threading.Thread(target=_serve, args=(self._loop,), name="holdfast", daemon=True)
            thread.start()
        return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_finish_what_was_asked())
    finally:
        loop.close()


async def _finish_what_was_asked() -> None:
    """Other threads may wait for an answer when one closes the store: they get it, or are told."""
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    if pending:
        _, pending = await asyncio.wait(pending, timeout=LAST_SECONDS)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
