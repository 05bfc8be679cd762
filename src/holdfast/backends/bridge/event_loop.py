"""Bridge to a backend whose verbs are coroutines, in the caller's own event loop.

Commits that arrive while others are under way wait, and go together when these are done: one round
trip and one flush for all of them. Two batches may be under way in a loop at a time, so that the
server works while the client prepares the next one. Two batches never have commits of the same
tree, so these keep their order.

A caller that saves alone carries its commit out in its own task: a task in between would cost two
turns of the event loop, a sixth of the client's work for a small save. The batch before predicts
whether a caller is alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from holdfast.backends.bridge.asyncio_base import AsyncioBridge
from holdfast.backends.bridge.read_batch import ReadBatch
from holdfast.backends.commit_outcomes import fail_each, separate
from holdfast.backends.port import AsyncBackend, Commit, Record, Row, RowKey
from holdfast.errors import StoreError

T = TypeVar("T")
Waiting = tuple[Commit, "asyncio.Future[None]"]
MAX_BATCH = 256
BATCHES_AT_ONCE = 2
WORTH_HALVING = 16  # trees: while nothing is under way, as many are split into two batches


class _Lane:
    """The commits and small reads of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)
        self.rows: ReadBatch[RowKey, Row | None] | None = None
        self.records: ReadBatch[bytes, Record | None] | None = None
        self.waiting: list[Waiting] = []
        self.busy: set[bytes] = set()  # trees of commits that are under way
        self.workers: set[asyncio.Task[None]] = set()
        self.is_starting = False  # a new worker has not looked at the queue yet
        self.is_alone = False  # the last batch was a single commit, and nothing waited behind it
        self.left_to_caller: _Own | None = None  # a commit whose caller carries it out, if it awaits it at once
        self.callers = 0  # number of callers that carry out their own commit

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.workers or self.callers or self.left_to_caller)

    def take(self) -> tuple[list[Waiting], set[bytes]]:
        """Take the next batch, in order, and its trees: only trees without a commit under way."""
        waiting, room = self.waiting, MAX_BATCH
        if not self.busy and len(waiting) >= WORTH_HALVING:
            room = min(room, (len(waiting) + 1) // 2)
        trees = {commit.tree for commit, _ in waiting}
        if len(waiting) <= room and self.busy.isdisjoint(trees):
            self.waiting = []
            self.busy |= trees
            return waiting, trees
        batch: list[Waiting] = []
        left: list[Waiting] = []
        trees = set()
        passed_over = set(self.busy)
        for entry in waiting:
            tree = entry[0].tree
            if tree in passed_over or (len(batch) >= room and (tree not in trees or len(batch) >= MAX_BATCH)):
                passed_over.add(tree)
                left.append(entry)
            else:
                trees.add(tree)
                batch.append(entry)
        self.waiting = left
        self.busy |= trees
        return batch, trees


class AsyncBridge(AsyncioBridge):
    backend: AsyncBackend

    def _begin(self) -> None:
        super()._begin()
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()
        self._last_lane: _Lane | None = None  # nearly always the next one, too

    async def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await method(*args, **kwargs)

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        lane = self._this_lane()
        if lane.rows is None:
            lane.rows = ReadBatch(self.backend.rows)
        return await lane.rows.get(keys)

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        lane = self._this_lane()
        if lane.records is None:
            lane.records = ReadBatch(self.backend.records)
        return await lane.records.get(ids)

    async def wait_for_commit(self, seen: int, seconds: float) -> bool:
        wait_for_notify = getattr(self.backend, "wait_for_notify", None)
        if wait_for_notify is None or seconds <= 0:
            return await super().wait_for_commit(seen, seconds)
        hearing = asyncio.ensure_future(self._hear(wait_for_notify))
        try:
            return await super().wait_for_commit(seen, seconds)
        finally:
            hearing.cancel()
            await asyncio.wait([hearing])

    async def _hear(self, wait_for_notify: Callable[[], Awaitable[None]]) -> None:
        with suppress(StoreError):  # then polling finds it
            await wait_for_notify()
            self.committed += 1
            self._notify_waiters()

    async def run_on_store_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)

    def commit(self, commit: Commit) -> Awaitable[None]:
        loop = asyncio.get_running_loop()
        lane = self._this_lane()
        if lane.is_alone and lane.is_idle:
            own = lane.left_to_caller = _Own(self, lane, commit)
            loop.call_soon(self._queue_up, lane, own)
            return own
        if lane.left_to_caller is not None:  # it is no longer alone, and comes first
            self._queue_up(lane, lane.left_to_caller)
        return self._wait(lane, commit, loop)

    def _this_lane(self) -> _Lane:
        loop = asyncio.get_running_loop()
        lane = self._last_lane
        if lane is None or lane.loop() is not loop:
            lane = self._last_lane = self._lane_of(loop)
        return lane

    def _lane_of(self, loop: asyncio.AbstractEventLoop) -> _Lane:
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = _Lane(loop)
        return lane

    def _wait(self, lane: _Lane, commit: Commit, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        future: asyncio.Future[None] = loop.create_future()
        lane.waiting.append((commit, future))
        self._start(lane, loop)
        return future

    def _queue_up(self, lane: _Lane, own: _Own) -> None:
        """Queue a commit that its caller did not await at once."""
        if lane.left_to_caller is own:
            lane.left_to_caller = None
            own.future = self._wait(lane, own.commit, asyncio.get_running_loop())

    def _start(self, lane: _Lane, loop: asyncio.AbstractEventLoop) -> None:
        if not lane.is_starting and len(lane.workers) + lane.callers < BATCHES_AT_ONCE:
            lane.is_starting = True
            lane.workers.add(loop.create_task(self._work(lane)))

    async def carry_out_own(self, lane: _Lane, commit: Commit) -> None:
        lane.left_to_caller = None
        lane.busy.add(commit.tree)
        lane.callers += 1
        try:
            [outcome] = await self._carry_out([commit])
        finally:
            lane.callers -= 1
            lane.busy.discard(commit.tree)
            lane.is_alone = lane.is_idle
            if lane.waiting:
                self._start(lane, asyncio.get_running_loop())
        self.count_commit()
        if outcome is not None:
            raise outcome

    async def _work(self, lane: _Lane) -> None:
        lane.is_starting = False
        try:
            while (taken := lane.take())[0]:
                batch, trees = taken
                if lane.waiting:
                    self._start(lane, asyncio.get_running_loop())
                try:
                    outcomes = await self._carry_out([commit for commit, _ in batch])
                finally:
                    lane.busy -= trees
                lane.is_alone = len(batch) == 1 and not lane.waiting
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if future.done():  # cancelled by its waiter
                        continue
                    if outcome is None:
                        future.set_result(None)
                    else:
                        future.set_exception(outcome)
                self.count_commit()
        except BaseException:  # only when the loop shuts down in the middle of it
            for _, future in lane.waiting:
                future.cancel()
            raise
        finally:
            # Together with the last look at the queue: the next commit starts another worker.
            lane.workers.remove(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _carry_out(self, batch: list[Commit]) -> list[BaseException | None]:
        try:
            outcomes: list[BaseException | None] = await self.backend.commit_all(batch)
        except Exception as error:
            return fail_each(error, len(batch))
        return separate(outcomes)


class _Own:
    """A commit that its caller carries out by awaiting it, or waits for when others came in between."""

    __slots__ = ("_bridge", "_lane", "commit", "future")

    def __init__(self, bridge: AsyncBridge, lane: _Lane, commit: Commit) -> None:
        self._bridge = bridge
        self._lane = lane
        self.commit = commit
        self.future: asyncio.Future[None] | None = None

    def __await__(self) -> Generator[Any, None, None]:
        if self._lane.left_to_caller is self:
            return self._bridge.carry_out_own(self._lane, self.commit).__await__()
        assert self.future is not None, "a commit is awaited once"
        return self.future.__await__()
