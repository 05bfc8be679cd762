"""Direct: awaits a backend whose verbs are coroutines, in the caller's own event loop.

Commits that arrive while one is under way wait, and go together when it is done: one round trip, one flush, for all that
wait. Only one batch is under way in a loop at a time, so commits keep the order in which they were given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from holdfast.backends.bridge import LoopBridge
from holdfast.backends.port import AsyncBackend, Commit

T = TypeVar("T")
MAX_BATCH = 256


class _Lane:
    """The commits of one event loop."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Commit, asyncio.Future[None]]] = []
        self.worker: asyncio.Task[None] | None = None


class Direct(LoopBridge):
    def __init__(self, backend: AsyncBackend) -> None:
        super().__init__(backend)
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()

    async def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await method(*args, **kwargs)

    async def aside(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)

    def commit(self, commit: Commit) -> Awaitable[None]:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = _Lane()
        future: asyncio.Future[None] = loop.create_future()
        lane.waiting.append((commit, future))
        if lane.worker is None:
            lane.worker = loop.create_task(self._work(lane))
        return future

    async def _work(self, lane: _Lane) -> None:
        try:
            while lane.waiting:
                batch, lane.waiting = lane.waiting[:MAX_BATCH], lane.waiting[MAX_BATCH:]
                for (_, future), outcome in zip(batch, await self._carry_out(batch), strict=True):
                    if future.done():  # cancelled by its waiter
                        continue
                    if outcome is None:
                        future.set_result(None)
                    else:
                        future.set_exception(outcome)
                self.committed += 1
                if self._listeners:
                    self._tell()
        finally:
            lane.worker = None
            for _, future in lane.waiting:  # only when the loop is shut down in the middle of it
                future.cancel()

    async def _carry_out(self, batch: list[tuple[Commit, asyncio.Future[None]]]) -> list[BaseException | None]:
        try:
            outcomes: list[BaseException | None] = await self.backend.commit_all([commit for commit, _ in batch])
        except Exception as error:
            return [error] * len(batch)
        return outcomes
