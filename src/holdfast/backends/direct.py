"""Direct: awaits a backend whose verbs are coroutines, in the caller's own event loop.

Commits that arrive while others are under way wait, and go together when these are done: one round trip, one flush, for all
that wait. Two batches may be under way in a loop at a time, so that the server works while the client prepares what comes
next; never two with commits of the same tree, so these keep the order in which they were given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from holdfast.backends.bridge import LoopBridge
from holdfast.backends.port import AsyncBackend, Commit
from holdfast.errors import StoreError

T = TypeVar("T")
Waiting = tuple[Commit, "asyncio.Future[None]"]
MAX_BATCH = 256
BATCHES_AT_ONCE = 2
WORTH_HALVING = 16  # trees: as long as nothing is under way, so many are divided into two batches


class _Lane:
    """The commits of one event loop."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.busy: set[bytes] = set()  # trees of commits that are under way
        self.workers: set[asyncio.Task[None]] = set()
        self.is_starting = False  # a worker was made that has not looked at what waits yet

    def take(self) -> list[Waiting]:
        """The next batch, in order: of trees that nothing is under way of."""
        batch: list[Waiting] = []
        left: list[Waiting] = []
        trees: set[bytes] = set()
        room = MAX_BATCH
        if not self.busy and len(self.waiting) >= WORTH_HALVING:
            room = min(room, (len(self.waiting) + 1) // 2)
        passed_over = set(self.busy)
        for entry in self.waiting:
            tree = entry[0].tree
            if tree in passed_over or (len(batch) >= room and (tree not in trees or len(batch) >= MAX_BATCH)):
                passed_over.add(tree)
                left.append(entry)
            else:
                trees.add(tree)
                batch.append(entry)
        self.waiting = left
        self.busy |= trees
        return batch


class Direct(LoopBridge):
    def __init__(self, backend: AsyncBackend) -> None:
        super().__init__(backend)
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()

    async def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await method(*args, **kwargs)

    async def wait_for_commit(self, seen: int, seconds: float) -> bool:
        news = getattr(self.backend, "news", None)
        if news is None or seconds <= 0:
            return await super().wait_for_commit(seen, seconds)
        hearing = asyncio.ensure_future(self._hear(news))
        try:
            return await super().wait_for_commit(seen, seconds)
        finally:
            hearing.cancel()
            await asyncio.wait([hearing])

    async def _hear(self, news: Callable[[], Awaitable[None]]) -> None:
        with suppress(StoreError):  # then it is found by looking
            await news()
            self.committed += 1
            self._tell()

    async def aside(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)

    def commit(self, commit: Commit) -> Awaitable[None]:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = _Lane()
        future: asyncio.Future[None] = loop.create_future()
        lane.waiting.append((commit, future))
        self._start(lane, loop)
        return future

    def _start(self, lane: _Lane, loop: asyncio.AbstractEventLoop) -> None:
        if not lane.is_starting and len(lane.workers) < BATCHES_AT_ONCE:
            lane.is_starting = True
            lane.workers.add(loop.create_task(self._work(lane)))

    async def _work(self, lane: _Lane) -> None:
        lane.is_starting = False
        try:
            while batch := lane.take():
                if lane.waiting:
                    self._start(lane, asyncio.get_running_loop())
                try:
                    outcomes = await self._carry_out(batch)
                finally:
                    lane.busy.difference_update(commit.tree for commit, _ in batch)
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if future.done():  # cancelled by its waiter
                        continue
                    if outcome is None:
                        future.set_result(None)
                    else:
                        future.set_exception(outcome)
                self.committed += 1
                if self._listeners:
                    self._tell()
        except BaseException:  # only when the loop is shut down in the middle of it
            for _, future in lane.waiting:
                future.cancel()
            raise
        finally:
            # Together with the last look at what waits: whoever commits next starts another one.
            lane.workers.remove(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _carry_out(self, batch: list[Waiting]) -> list[BaseException | None]:
        try:
            outcomes: list[BaseException | None] = await self.backend.commit_all([commit for commit, _ in batch])
        except Exception as error:
            return [error] * len(batch)
        return outcomes
