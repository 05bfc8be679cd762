"""The first save of a new process into a session of 1 MB, beside the saves that follow it in the same process.

Only the call of `save` is timed: not the start of the interpreter, not the imports, not the making of the client.
Whatever the client puts off until its first save (opening the file, reading the head) is in the figure.

"Beside" are processes that start while another one has the store open. A process that is alone with
it also makes the WAL, which the last one removed: see `cold_floor.py`, which says what that costs
without holdfast.
"""

import asyncio
import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.contenders.contender import kept_on_disk, opened
from benchmarks.contenders.holdfast_sqlite import AGENT, DURABILITY, HoldfastUndeclared
from benchmarks.conversation import Conversation
from benchmarks.measure import Samples, milliseconds, settle
from benchmarks.plan import MEGABYTE, Plan
from benchmarks.subprocesses import run_module
from benchmarks.workloads import cold_floor

WARM_SAVES = 15
ALONE = ("undeclared", "declared")
BESIDE = ("undeclared_beside", "declared_beside")


async def run(plan: Plan) -> dict[str, Any]:
    store = HoldfastUndeclared(plan.stores / "cold-start")
    floor = plan.stores / "cold-floor" / "store.db"
    cold_floor.build(floor, plan.cold_processes)
    outcomes: dict[str, list[dict[str, float]]] = {way: [] for way in (*ALONE, *BESIDE, "floor")}
    with kept_on_disk([store]):
        async with opened([store]):
            for way in (*ALONE, *BESIDE):
                for number in range(plan.cold_processes):
                    await _build(store, way, number)
        for number in range(plan.cold_processes):
            outcomes["floor"].append(run_module(cold_floor.__name__, [str(floor), str(number)]))
            for way in ALONE:
                outcomes[way].append(run_module(__name__, [str(store.path), way, str(number)]))
            async with opened([store]):
                await store.save("beside", Conversation().advance())  # so that there is a WAL
                for way in BESIDE:
                    outcomes[way].append(run_module(__name__, [str(store.path), way, str(number)]))
    shutil.rmtree(floor.parent)
    return {way: _summary(each) for way, each in outcomes.items()}


def _summary(outcomes: list[dict[str, float]]) -> dict[str, Any]:
    medians = {name: statistics.median(outcome[name] for outcome in outcomes) for name in outcomes[0]}

    def over_warm(name: str) -> float:
        return round(statistics.median(one[name] / one["warm_ms"] for one in outcomes), 3)

    summary = {"processes": len(outcomes), **medians, "first_over_warm": over_warm("first_ms")}
    if "other_session_ms" in medians:
        summary["other_session_over_warm"] = over_warm("other_session_ms")
    return summary


async def _build(store: HoldfastUndeclared, way: str, number: int) -> None:
    """Two sessions per process: one for its first save, one that it meets when it is already warm."""
    for session, seed in _sessions(way, number):
        conversation = Conversation(seed)
        await store.save(session, conversation.grow_to(MEGABYTE - 50_000))
        await store.save(session, conversation.grow_to(MEGABYTE))


def _sessions(way: str, number: int) -> list[tuple[str, int]]:
    return [(f"{way}-{number}-first", 10 + number), (f"{way}-{number}-other", 100 + number)]


async def _child(path: Path, way: str, number: int) -> dict[str, float]:
    from holdfast import Client

    (session, seed), (other_session, other_seed) = _sessions(way, number)
    conversation, other = Conversation(seed), Conversation(other_seed)
    for one in (conversation, other):
        one.grow_to(MEGABYTE - 50_000)
        one.grow_to(MEGABYTE)
    first, warm, elsewhere = Samples(), Samples(), Samples()

    async with Client.sqlite(path, durability=DURABILITY) as client:

        async def save(to: str, talk: Conversation, samples: Samples) -> str:
            step = talk.advance()
            if way.startswith("declared"):
                call = client.save(
                    agent_id=AGENT, execution_state=step.rest, append={"messages": step.added}, session_id=to
                )
            else:
                call = client.save(agent_id=AGENT, execution_state=step.state, session_id=to)
            return await samples.time(call)

        settle()
        await save(session, conversation, first)
        for _ in range(WARM_SAVES):
            last = await save(session, conversation, warm)
        await save(other_session, other, elsewhere)
        if (await client.restore(last)).execution_state != conversation.state:
            raise AssertionError("restored another state than was saved")
    return {
        "first_ms": milliseconds(first.wall[0]),
        "first_cpu_ms": milliseconds(first.cpu[0]),
        "warm_ms": milliseconds(statistics.median(warm.wall)),
        "warm_cpu_ms": milliseconds(statistics.median(warm.cpu)),
        "other_session_ms": milliseconds(elsewhere.wall[0]),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_child(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))))
