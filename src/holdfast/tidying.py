"""Collection in the background, where a store can tell that it is worth it: the memory of what is over comes back by itself.

It is `gc`, with one difference: what somebody has expired by hand can still be undone afterwards.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    import asyncio
    import threading

    from holdfast.backends.bridge import Bridge
    from holdfast.operations.services import Services


async def tidy(services: Services, bridge: Bridge) -> None:
    """Collects if it is time to, and nobody else does. What goes wrong is left for the next time: nobody waits for this, and
    whoever needs the store is told by it."""
    from holdfast.operations import collect as collecting

    with suppress(HoldfastError):
        if await bridge.take_turn_to_collect():
            await collecting.collect(services, keep_undoable=True)
            await bridge.was_collected()


def in_a_task(services: Services, bridge: Bridge) -> asyncio.Task[None]:
    import asyncio

    return asyncio.get_running_loop().create_task(tidy(services, bridge))


def is_under_way(task: asyncio.Task[None]) -> bool:
    """In the event loop that runs now: what was begun in another one may never go on."""
    import asyncio

    return not task.done() and task.get_loop() is asyncio.get_running_loop()


async def stop(task: asyncio.Task[None]) -> None:
    """Before the store is closed. A task of another event loop finds it closed, and ends."""
    import asyncio

    if is_under_way(task):
        task.cancel()
        await asyncio.wait([task])


def in_a_thread(services: Services, bridge: Bridge) -> threading.Thread:
    import threading

    from holdfast.backends.stepping import run_inline

    # A daemon: a program does not wait for it, and what it leaves half done is as good as not begun.
    thread = threading.Thread(target=lambda: run_inline(tidy(services, bridge)), name="holdfast-tidying", daemon=True)
    thread.start()
    return thread
