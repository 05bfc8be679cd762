"""Blocking form of a backend whose verbs are coroutines, for callers without an event loop.

It runs on the caller's thread if the backend can do that, else in an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from holdfast.backends import fork_safety
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import AsyncBackend, BlockingBackend, Capabilities
from holdfast.errors import StoreError

T = TypeVar("T")
LAST_SECONDS = 5


def blocking(backend: AsyncBackend) -> BlockingBackend:
    """Return the same backend with blocking verbs, for any thread."""
    find = getattr(backend, "without_loop", None)
    without_loop = None if find is None else find()
    if without_loop is None:
        return run_in_loop(backend)
    return cast("BlockingBackend", _SteppedBackend(backend, without_loop))


def run_in_loop(backend: AsyncBackend) -> BlockingBackend:
    """Return the same backend in an event loop of its own, even if it could do without."""
    return cast("BlockingBackend", _LoopThreadBackend(backend, backend))


def get_awaited_backend(backend: object) -> AsyncBackend | None:
    """Return the backend that this one makes blocking; None if it wraps none."""
    return backend._backend if isinstance(backend, _BlockingBackend) else None


class _BlockingBackend:
    """A blocking backend: each verb blocks until its coroutine is done."""

    def __init__(self, backend: AsyncBackend, target: AsyncBackend) -> None:
        self._backend = backend
        self._target = target  # whose verbs are called
        self._loop = _LoopThread()
        self._capabilities: tuple[Capabilities | None, Capabilities | None] = None, None

    @property
    def capabilities(self) -> Capabilities:
        found = self._target.capabilities
        before, blocking = self._capabilities
        if blocking is None or before is not found:
            blocking = replace(found, awaitable=False)
            self._capabilities = found, blocking
        return blocking

    def listen(self, wake: Callable[[], None]) -> Callable[[], object]:
        """Call `wake` once other processes may have committed; return a function that cancels this."""
        wait_for_notify = getattr(self._backend, "wait_for_notify", None)
        if wait_for_notify is None:
            return lambda: None

        async def listen() -> None:
            with suppress(StoreError):  # then polling finds it
                await wait_for_notify()
                wake()

        return self._loop.begin(listen()).cancel


class _LoopThreadBackend(_BlockingBackend):
    """A backend in an event loop of its own, in a daemon thread that starts with the first call."""

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


class _SteppedBackend(_BlockingBackend):
    """A backend whose verbs are stepped on the caller's thread.

    Only waiting for notifications needs a loop in a thread.
    """

    def __init__(self, backend: AsyncBackend, without_loop: AsyncBackend) -> None:
        super().__init__(backend, without_loop)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        method = getattr(self._target, verb)
        if verb == "ask_to_collect":  # the one that is no coroutine
            return method  # type: ignore[no-any-return]  # verbs have no types here

        def call(*args: Any, **kwargs: Any) -> Any:
            return run_inline(method(*args, **kwargs))

        setattr(self, verb, call)  # the next lookup finds it without `__getattr__`
        return call

    def close(self) -> None:
        # Closing one closes both. A listening loop must release its connection before that is gone.
        if self._loop.is_running:
            self._loop.run(self._backend.close())
        else:
            run_inline(self._target.close())
        self._loop.stop()


class _LoopThread:
    """An event loop in a daemon thread, which starts on demand."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        fork_safety.begin_again_in_child(self, _LoopThread._begin_again)

    def _begin_again(self) -> None:
        """Begin again in a forked child, which lacks the parent's threads and needs a loop of its own."""
        fork_safety.leave_to_parent(self._loop)
        self._starting, self._loop = threading.Lock(), None

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = self.begin(coroutine)
        try:
            return future.result()
        except CancelledError as error:
            raise StoreError("the store was closed while it was asked: open a new client") from error

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        with self._starting:  # so that a call comes before a `stop`, or after it in a new loop
            return asyncio.run_coroutine_threadsafe(coroutine, self._start_loop())

    def stop(self) -> None:
        with self._starting:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=(self._loop,), name="holdfast", daemon=True)
            thread.start()
        return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_finish_pending())
    finally:
        loop.close()


async def _finish_pending() -> None:
    """Finish pending calls: threads that wait while another closes the store get an answer or an error."""
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    if pending:
        _, pending = await asyncio.wait(pending, timeout=LAST_SECONDS)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
