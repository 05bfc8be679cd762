"""Garbage collection in the background, where a store can tell that it is worth it.

It is `gc`, with one difference: an expiry by hand can still be undone afterwards.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    import asyncio
    import threading

    from holdfast.backends.bridge.base import Bridge
    from holdfast.operations.context import StoreContext


async def tidy(ctx: StoreContext, bridge: Bridge) -> None:
    """Run gc if it is due and no other process runs it.

    Errors are left for the next time: no caller waits for this, and a caller that needs the store
    gets its own error.
    """
    from holdfast.operations import gc as collecting

    with suppress(HoldfastError):
        if await bridge.take_turn_to_collect():
            await collecting.collect(ctx, keep_undoable=True)
            await bridge.was_collected()


def start_task(ctx: StoreContext, bridge: Bridge) -> asyncio.Task[None]:
    import asyncio

    return asyncio.get_running_loop().create_task(tidy(ctx, bridge))


def is_running(task: asyncio.Task[None]) -> bool:
    """Return whether the task runs in the present event loop: one of another loop may never continue."""
    import asyncio

    return not task.done() and task.get_loop() is asyncio.get_running_loop()


async def stop(task: asyncio.Task[None]) -> None:
    """Stop the task before the store is closed. One of another event loop finds it closed, and ends."""
    import asyncio

    if is_running(task):
        task.cancel()
        await asyncio.wait([task])


def start_thread(ctx: StoreContext, bridge: Bridge) -> threading.Thread:
    import threading

    from holdfast.backends.bridge.step import run_inline

    # A daemon: a program does not wait for it, and what it leaves half done is as good as not
    # begun.
    thread = threading.Thread(target=lambda: run_inline(tidy(ctx, bridge)), name="holdfast-tidying", daemon=True)
    thread.start()
    return thread
