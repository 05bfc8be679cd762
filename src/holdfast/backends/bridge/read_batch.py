"""Group reads: small reads of many tasks go to a server together, as their commits do.

A caller that finds nothing under way reads at once. Those that come while others read wait, and go
together: one round trip for all of them. So a process that meets thousands of sessions for the
first time does not ask for each by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from holdfast.backends.commit_outcomes import copy_error

K = TypeVar("K")
V = TypeVar("V")
FEW = 4  # keys: a call that asks for more is its own batch
MAX_KEYS = 256
READS_AT_ONCE = 2
SOON = 0.5  # seconds: after a quick failure each caller asks by itself, so that it fails alone


class ReadBatch(Generic[K, V]):
    """The calls of one verb, which takes keys and returns as many answers, in one event loop."""

    def __init__(self, ask: Callable[[Sequence[K]], Awaitable[list[V]]]) -> None:
        self._ask = ask
        self._under_way = 0
        self._waiting: list[tuple[Sequence[K], asyncio.Future[list[V]]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(self, keys: Sequence[K]) -> list[V]:
        """Return the answers for these keys, alone or together with others."""
        if len(keys) > FEW:
            return await self._ask(keys)
        if self._under_way < READS_AT_ONCE and not self._waiting:
            self._under_way += 1
            try:
                return await self._ask(keys)
            finally:
                self._end()
        future: asyncio.Future[list[V]] = asyncio.get_running_loop().create_future()
        self._waiting.append((keys, future))
        return await future

    def _end(self) -> None:
        """End a read; start the next one with all that wait."""
        self._under_way -= 1
        taken, count = 0, 0
        for keys, _ in self._waiting:
            count += len(keys)
            if taken and count > MAX_KEYS:
                break
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        batch = [entry for entry in batch if not entry[1].done()]  # the others were cancelled
        if not batch:
            if self._waiting:
                self._under_way += 1
                self._end()
            return
        self._under_way += 1
        task = asyncio.get_running_loop().create_task(self._carry_out(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, batch: list[tuple[Sequence[K], asyncio.Future[list[V]]]]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            answers = await self._ask([key for keys, _ in batch for key in keys])
        except Exception as error:
            if len(batch) > 1 and loop.time() - began < SOON:
                await asyncio.gather(*(self._ask_alone(*entry) for entry in batch))
            else:
                for _, future in batch:
                    _fail(future, copy_error(error))
        except BaseException:  # only when the loop shuts down in the middle of it
            for _, future in batch:
                future.cancel()
            raise
        else:
            at = 0
            for keys, future in batch:
                if not future.done():  # cancelled by its waiter
                    future.set_result(answers[at : at + len(keys)])
                at += len(keys)
        finally:
            self._end()

    async def _ask_alone(self, keys: Sequence[K], future: asyncio.Future[list[V]]) -> None:
        try:
            answers = await self._ask(keys)
        except Exception as error:
            _fail(future, error)
        else:
            if not future.done():
                future.set_result(answers)


def _fail(future: asyncio.Future[list[V]], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
