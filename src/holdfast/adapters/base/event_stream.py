"""The events of a turn as an async generator, for frameworks that stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any

Emit = Callable[[Any], None]


async def stream_turn(take: Callable[[Emit], Awaitable[Any]]) -> AsyncGenerator[Any, None]:
    """Yield what `take` emits while it runs, then raise what it raised.

    The turn runs in a task of its own. A reader that stops early cancels it; the same call continues
    the turn later.
    """
    events: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue()

    def emit(event: Any) -> None:
        events.put_nowait((False, event))

    async def run() -> None:
        try:
            await take(emit)
        finally:
            events.put_nowait((True, None))

    task = asyncio.create_task(run())
    try:
        while True:
            is_end, event = await events.get()
            if is_end:
                break
            yield event
        await task
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
