"""Workload A: a conversation grows by one step per save; all contenders save each step before the next is made."""

import random
import shutil
import statistics
from collections import defaultdict
from typing import Any

from benchmarks.contenders import contenders
from benchmarks.contenders.contender import Contender, kept_on_disk, opened
from benchmarks.conversation import Conversation, State, compact_json
from benchmarks.measure import Samples, milliseconds, settle, shuffled
from benchmarks.plan import Plan

SESSION = "growing"
TIMELINE_LIMIT = 20
CURVE_POINTS = 40
BYTES_PER_STEP = 1250
SPARE_DISK = 4_000_000_000


async def run(plan: Plan) -> dict[str, Any]:
    return {str(steps): await _run_size(plan, steps, rounds) for steps, rounds in plan.growing_steps.items()}


async def _run_size(plan: Plan, steps: int, rounds: int) -> dict[str, Any]:
    collected: dict[str, Collected] = defaultdict(Collected)
    result: dict[str, Any] = {"rounds": rounds, "left_out": []}
    for number in range(rounds):
        entered = contenders(plan.stores / f"growing-{steps}", with_peers=plan.with_peers)
        fitting = [one for one in entered if _fits(plan, one, steps, sum(c.writes_whole_states for c in entered))]
        result["left_out"] = [one.key for one in entered if one not in fitting]
        with kept_on_disk(fitting):
            async with opened(fitting):
                race = Race(fitting, plan, number, collected)
                final = await race.save(steps)
                await race.read(final)
            result["final_json_bytes"] = len(compact_json(final))
            for one in fitting:
                collected[one.key].bytes_on_disk = one.bytes_on_disk()
    result["contenders"] = {key: one.summary(result["final_json_bytes"]) for key, one in collected.items()}
    return result


class Collected:
    def __init__(self) -> None:
        self.durability = ""
        self.saves = Samples()
        self.tail = Samples()
        self.latest = Samples()
        self.random = Samples()
        self.timeline = Samples()
        self.size_curve: list[tuple[int, int]] = []
        self.bytes_on_disk = 0

    def summary(self, final_json_bytes: int) -> dict[str, Any]:
        return {
            "durability": self.durability,
            "save_at_end": self.tail.summary(),
            "all_saves_seconds": round(sum(self.saves.wall), 3),
            "restore_latest": self.latest.summary(),
            "restore_random": self.random.summary(),
            "timeline": self.timeline.summary(),
            "bytes_on_disk": self.bytes_on_disk,
            "bytes_over_final_json": round(self.bytes_on_disk / final_json_bytes, 3),
            "save_curve": _medians_along(self.saves.wall),
            "size_curve": self.size_curve,
        }


class Race:
    """One round: every contender saves the same conversation, step by step, and is then read from."""

    def __init__(self, contenders: list[Contender], plan: Plan, seed: int, collected: dict[str, Collected]) -> None:
        self._contenders = contenders
        self._plan = plan
        self._order = random.Random(seed)
        self._collected = collected
        self._ids: dict[str, list[str]] = defaultdict(list)

    def _in_turn(self) -> list[tuple[Contender, Collected]]:
        return [(one, self._collected[one.key]) for one in shuffled(self._contenders, self._order)]

    async def save(self, steps: int) -> State:
        for one, collected in self._in_turn():
            collected.durability = await one.durability()
            collected.saves = Samples()
            collected.size_curve = []
        conversation = Conversation(seed=1)
        sized = {max(1, round(steps ** (point / CURVE_POINTS))) for point in range(CURVE_POINTS + 1)}
        settle()
        for number in range(1, steps + 1):
            step = conversation.advance()
            for one, collected in self._in_turn():
                self._ids[one.key].append(await collected.saves.time(one.save(SESSION, step)))
            if number in sized:
                for one, collected in self._in_turn():
                    collected.size_curve.append((number, one.bytes_while_open()))
        for _, collected in self._in_turn():
            collected.tail.extend(collected.saves.last(self._plan.growing_tail))
        return conversation.state

    async def read(self, final: State) -> None:
        for one, _ in self._in_turn():
            if await one.restore(SESSION, self._ids[one.key][-1]) != final:
                raise AssertionError(f"{one.key} restored another state than was saved")
        for _ in range(self._plan.restores):
            for one, collected in self._in_turn():
                settle()
                await collected.latest.time(one.restore(SESSION, self._ids[one.key][-1]))
        for _ in range(self._plan.timelines):
            for one, collected in self._in_turn():
                settle()
                await collected.timeline.time(one.timeline(SESSION, TIMELINE_LIMIT))
        for _ in range(self._plan.restores // 2):
            share = self._order.random()
            for one, collected in self._in_turn():
                ids = self._ids[one.key]
                settle()
                await collected.random.time(one.restore(SESSION, ids[int(share * len(ids))]))


def _fits(plan: Plan, contender: Contender, steps: int, hungry: int) -> bool:
    """Whether the disk has room for a contender that writes every state whole, beside the others of its kind."""
    if not contender.writes_whole_states:
        return True
    needed = steps * steps * BYTES_PER_STEP // 2 * hungry
    return shutil.disk_usage(plan.stores).free > needed + SPARE_DISK


def _medians_along(walls: list[float]) -> list[tuple[int, float]]:
    """The save time by step, as medians of up to `CURVE_POINTS` stretches."""
    stretch = max(1, len(walls) // CURVE_POINTS)
    return [
        (start + stretch // 2 + 1, milliseconds(statistics.median(walls[start : start + stretch])))
        for start in range(0, len(walls), stretch)
    ]
