"""Workload B: many saves of a 1 KB state, by one writer and by many asyncio tasks, each in a session of its own."""

import asyncio
import random
import shutil
import statistics
import time
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.contenders import contenders
from benchmarks.contenders.bare_sqlite import BareSqlite, BareSqliteInThread
from benchmarks.contenders.contender import Contender, kept_on_disk, opened
from benchmarks.conversation import Step, compact_json, small_state
from benchmarks.measure import milliseconds, percentile, settle, shuffled
from benchmarks.plan import Plan

LEFT_OUT = {"holdfast_declared", "langgraph_delta"}
SAVES_PER_TURN = 20
"""Of each writer, before the next contender has its turn: few, so that all see the same moods of the disk."""
WARM_UP = 1536
"""Saves before the clock starts. Until a WAL has been checkpointed for the first time it grows, and a commit that makes
a file longer costs up to twice as much: who writes more pages per save would be over it sooner."""


async def run(plan: Plan) -> dict[str, Any]:
    return {str(writers): await _run_writers(plan, writers) for writers in plan.writers}


async def _run_writers(plan: Plan, writers: int) -> dict[str, Any]:
    directory = plan.stores / f"throughput-{writers}"
    entered = [one for one in contenders(directory, with_peers=plan.with_peers) if one.key not in LEFT_OUT]
    tallies: dict[str, Tally] = {}
    order = random.Random(writers)
    with kept_on_disk(entered):
        async with opened(entered), AsyncExitStack() as stack:
            rounds: dict[str, Any] = {}
            for one in entered:
                tallies[one.key] = Tally(await one.durability())
                rounds[one.key] = AsyncRound(one, writers, tallies[one.key])
            if writers == 1:
                bare = BareSqlite(directory / BareSqlite.key)
                stack.callback(shutil.rmtree, directory / BareSqlite.key)
                stack.callback(bare.close)
                tallies[bare.key] = Tally(bare.durability())
                rounds[bare.key] = _BareRound(bare, tallies[bare.key])
                hop = BareSqliteInThread(directory / BareSqliteInThread.key)
                stack.callback(shutil.rmtree, directory / BareSqliteInThread.key)
                stack.callback(hop.close)
                tallies[hop.key] = Tally(hop.durability())
                rounds[hop.key] = _BareRound(hop, tallies[hop.key])
                sync = _SyncRound(directory / _SyncRound.key, tallies)
                stack.callback(shutil.rmtree, directory / _SyncRound.key)
                stack.callback(sync.close)
                rounds[sync.key] = sync
            for key, tally in tallies.items():
                await rounds[key](WARM_UP)
                tally.forget()
            settle()
            saves = SAVES_PER_TURN * writers
            for _ in range(plan.writes_total // saves):
                for key in shuffled(rounds, order):
                    await rounds[key](saves)
    return {"saves": plan.writes_total, "contenders": {key: tally.summary() for key, tally in tallies.items()}}


class Tally:
    def __init__(self, durability: str) -> None:
        self.durability = durability
        self.forget()

    def forget(self) -> None:
        self.each: list[float] = []
        self.wall = 0.0
        self.cpu = 0.0
        self.rates: list[float] = []

    def add_turn(self, saves: int, wall: float, cpu: float) -> None:
        self.wall += wall
        self.cpu += cpu
        self.rates.append(saves / wall)

    def summary(self) -> dict[str, Any]:
        return {
            "durability": self.durability,
            "saves_per_second": round(len(self.each) / self.wall, 1),
            "median_turn_saves_per_second": round(statistics.median(self.rates), 1),
            "p10_ms": milliseconds(percentile(self.each, 0.1)),
            "p50_ms": milliseconds(percentile(self.each, 0.5)),
            "p99_ms": milliseconds(percentile(self.each, 0.99)),
            "cpu_us_per_save": round(self.cpu / len(self.each) * 1e6, 1),
        }


class AsyncRound:
    def __init__(self, contender: Contender, writers: int, tally: Tally) -> None:
        self._contender = contender
        self._tally = tally
        self._states = [small_state(seed=writer) for writer in range(writers)]
        self._number = 0

    async def __call__(self, saves: int) -> None:
        each = saves // len(self._states)
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(self._write(writer, each) for writer in range(len(self._states))))
        self._tally.add_turn(saves, time.perf_counter() - wall, time.process_time() - cpu)
        self._number += each

    async def _write(self, writer: int, saves: int) -> None:
        state, session = self._states[writer], f"writer-{writer}"
        for number in range(self._number + 1, self._number + saves + 1):
            state["scratch"]["step"] = number
            began = time.perf_counter()
            await self._contender.save(session, Step(number, state, state, []))
            self._tally.each.append(time.perf_counter() - began)


class _BareRound:
    def __init__(self, bare: BareSqlite | BareSqliteInThread, tally: Tally) -> None:
        self._bare = bare
        self._tally = tally
        self._data = compact_json(small_state())

    async def __call__(self, saves: int) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(saves):
            began = time.perf_counter()
            saving = self._bare.save(self._data)
            if saving is not None:  # by another thread
                await saving
            self._tally.each.append(time.perf_counter() - began)
        self._tally.add_turn(saves, time.perf_counter() - wall, time.process_time() - cpu)


class _SyncRound:
    """holdfast's synchronous client, which pays no hop between threads; for information, no goal is set for it."""

    key = "holdfast_sync"

    def __init__(self, directory: Any, tallies: dict[str, Tally]) -> None:
        from holdfast import SyncClient

        directory.mkdir(parents=True)
        self._client = SyncClient.sqlite(directory / "store.db", durability="full")
        self._client.__enter__()
        self._tally = tallies[self.key] = Tally("wal/FULL")
        self._state = small_state()

    def close(self) -> None:
        self._client.__exit__(None, None, None)

    async def __call__(self, saves: int) -> None:
        # In a thread without an event loop, as its users call it.
        await asyncio.to_thread(self._save_all, saves)

    def _save_all(self, saves: int) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        for number in range(saves):
            self._state["scratch"]["step"] = number
            began = time.perf_counter()
            self._client.save(agent_id="bench", execution_state=self._state, session_id="writer-0")
            self._tally.each.append(time.perf_counter() - began)
        self._tally.add_turn(saves, time.perf_counter() - wall, time.process_time() - cpu)
