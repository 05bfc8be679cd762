"""The first save of a new process into a session of 1 MB, beside the saves that follow it in the same process.

Only the call of `save` is timed: not the start of the interpreter, not the imports, not the making of the client.
Whatever the client puts off until its first save (opening the file, reading the head) is in the figure.
"""

import asyncio
import json
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

WARM_SAVES = 15


async def run(plan: Plan) -> dict[str, Any]:
    store = HoldfastUndeclared(plan.stores / "cold-start")
    ways = ("undeclared", "declared")
    outcomes: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with kept_on_disk([store]):
        async with opened([store]):
            for way in ways:
                for number in range(plan.cold_processes):
                    await _build(store, way, number)
        for number in range(plan.cold_processes):
            for way in ways:
                outcomes[way].append(run_module(__name__, [str(store.path), way, str(number)]))
    return {way: _summary(each) for way, each in outcomes.items()}


def _summary(outcomes: list[dict[str, float]]) -> dict[str, Any]:
    def middle(name: str) -> float:
        return statistics.median(outcome[name] for outcome in outcomes)

    return {
        "processes": len(outcomes),
        "first_ms": middle("first_ms"),
        "warm_ms": middle("warm_ms"),
        "first_over_warm": round(statistics.median(one["first_ms"] / one["warm_ms"] for one in outcomes), 3),
        "other_session_ms": middle("other_session_ms"),
        "other_session_over_warm": round(
            statistics.median(one["other_session_ms"] / one["warm_ms"] for one in outcomes), 3
        ),
    }


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
            if way == "declared":
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
        "warm_ms": milliseconds(statistics.median(warm.wall)),
        "other_session_ms": milliseconds(elsewhere.wall[0]),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_child(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))))
