"""Workload B on servers: many saves of a 1 KB state, by one writer (with and without an event loop)
and by many asyncio tasks."""

import asyncio
import random
import time
from typing import Any

from benchmarks.contenders.contender import opened
from benchmarks.contenders.on_server import OnServer
from benchmarks.contenders.postgres_without_loop import WithoutLoop
from benchmarks.conversation import Step, small_state
from benchmarks.local_servers import Work
from benchmarks.measure import settle, shuffled
from benchmarks.server_plan import ServerPlan
from benchmarks.workloads.throughput import AsyncRound, Tally


async def run(plan: ServerPlan) -> dict[str, Any]:
    return {str(writers): await _run_writers(plan, writers) for writers in plan.turns}


async def _run_writers(plan: ServerPlan, writers: int) -> dict[str, Any]:
    entered = [*plan.field.throughput(), *(plan.field.without_loop() if writers == 1 else [])]
    for one in entered:
        one.server.clear()
    order = random.Random(writers)
    turns, saves = plan.turns[writers], plan.saves_per_turn * writers
    async with opened(entered):
        sides = [_Side(one, writers, await one.durability()) for one in entered]
        for side in sides:
            await side.round(plan.warm_up)
            side.tally.forget()
        settle()
        for _ in range(turns):
            for side in shuffled(sides, order):
                await side.turn(saves)
    return {"saves": turns * saves, "turns": turns, "contenders": {side.key: side.summary() for side in sides}}


class _ThreadRound:
    """One writer in a thread without an event loop."""

    def __init__(self, contender: WithoutLoop, tally: Tally) -> None:
        self._contender = contender
        self._tally = tally
        self._state = small_state(seed=0)
        self._number = 0

    async def __call__(self, saves: int) -> None:
        await asyncio.to_thread(self._save_all, saves)

    def _save_all(self, saves: int) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(saves):
            self._number += 1
            self._state["scratch"]["step"] = self._number
            began = time.perf_counter()
            self._contender.save_now("writer-0", Step(self._number, self._state, self._state, []))
            self._tally.each.append(time.perf_counter() - began)
        self._tally.add_turn(saves, time.perf_counter() - wall, time.process_time() - cpu)


class _Side:
    """A contender, its tally, and what its server had to do for it."""

    def __init__(self, contender: OnServer, writers: int, durability: str) -> None:
        self.key = contender.key
        self.tally = Tally(durability)
        self.round = (
            _ThreadRound(contender, self.tally)
            if isinstance(contender, WithoutLoop)
            else AsyncRound(contender, writers, self.tally)
        )
        self._server = contender.server
        self._work: list[Work] = []

    async def turn(self, saves: int) -> None:
        before = self._server.work()
        await self.round(saves)
        self._work.append(self._server.work().since(before))

    def summary(self) -> dict[str, Any]:
        saves = len(self.tally.each)
        return {
            **self.tally.summary(),
            "server_cpu_us_per_save": round(sum(work.cpu_seconds for work in self._work) / saves * 1e6, 1),
            "requests_per_save": round(sum(work.requests for work in self._work) / saves, 3),
            "bytes_to_server_per_save": round(sum(work.bytes_in for work in self._work) / saves),
            "bytes_logged_per_save": round(sum(work.bytes_logged for work in self._work) / saves),
        }
