"""The event loop of a worker: its two bridges to one store, and the event that stops it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import cast

from holdfast.backends.bridge.asyncio_base import AsyncioBridge
from holdfast.backends.bridge.base import Bridge
from holdfast.backends.bridge.blocking import blocking, get_awaited_backend
from holdfast.backends.bridge.event_loop import AsyncBridge
from holdfast.backends.bridge.inline import InlineBridge
from holdfast.backends.bridge.worker_thread import ThreadBridge
from holdfast.operations.context import StoreContext
from holdfast.runs.worker import Worker, WorkerOptions

WATCH_SECONDS = 1.0  # the thread that waits for a stop ends so long after its worker


async def work(
    ctx: StoreContext, options: WorkerOptions, stop: threading.Event | None, client_ctx: StoreContext | None = None
) -> int:
    """Run a worker in this event loop until it is drained, stopped or cancelled."""
    worker = Worker(ctx, _for_threads(ctx), client_ctx or ctx, options)
    with _stopped_by(stop, worker):
        return await worker.work()


def work_without_loop(ctx: StoreContext, options: WorkerOptions, stop: threading.Event | None) -> int:
    """Run a worker for a client without an event loop, in a loop of its own.

    `asyncio.run` makes Ctrl-C a cancellation, and puts the handler of the program back.
    """
    bridge = new_bridge(ctx)
    inline = cast("InlineBridge", cast("Bridge", ctx.backend).inner)
    with inline.relayed_to(cast("AsyncioBridge", bridge.inner).count_commit):
        return asyncio.run(work(replace(ctx, backend=bridge), options, stop, ctx))


@contextmanager
def _stopped_by(stop: threading.Event | None, worker: Worker) -> Iterator[None]:
    """Stop a worker once the event is set. A thread waits for it, as threads and signal handlers set it."""
    if stop is None:
        yield
        return
    loop, over = asyncio.get_running_loop(), threading.Event()

    def watch() -> None:
        while not stop.wait(WATCH_SECONDS):
            if over.is_set():
                return
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(worker.stop)

    threading.Thread(target=watch, name="holdfast stop", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def new_bridge(ctx: StoreContext) -> Bridge:
    """Return a bridge for event loops to the store of a client that has none."""
    bridge = cast("Bridge", ctx.backend)
    backend = bridge.inner.backend
    of_server = get_awaited_backend(backend)
    return bridge.rewrap(ThreadBridge(backend) if of_server is None else AsyncBridge(of_server))


def _for_threads(ctx: StoreContext) -> StoreContext:
    """Return the context over the same store for threads without an event loop."""
    bridge = cast("Bridge", ctx.backend)
    backend = bridge.inner.backend
    inline = InlineBridge(blocking(backend) if backend.capabilities.awaitable else backend)
    return replace(ctx, backend=bridge.rewrap(inline))
