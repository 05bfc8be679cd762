"""Workload H: one more step on a history of 1 MB and of 10 MB; contenders take turns save by save,
so caches are cold."""

import random
from typing import Any

from benchmarks.contenders import contenders
from benchmarks.contenders.contender import Contender, kept_on_disk, opened
from benchmarks.conversation import Conversation, compact_json
from benchmarks.measure import Samples, settle, shuffled
from benchmarks.plan import Plan

SESSION = "history"


async def run(plan: Plan) -> dict[str, Any]:
    return {str(size): await _run_size(plan, size, saves) for size, saves in plan.history_saves.items()}


async def _run_size(plan: Plan, size: int, saves: int) -> dict[str, Any]:
    entered = contenders(plan.stores / f"history-{size}", with_peers=plan.with_peers)
    with kept_on_disk(entered):
        async with opened(entered):
            return await _measure(plan, entered, size, saves)


async def _measure(plan: Plan, entered: list[Contender], size: int, saves: int) -> dict[str, Any]:
    order = random.Random(size)
    conversation = Conversation(seed=2)
    step = conversation.grow_to(size)
    result: dict[str, Any] = {"history_json_bytes": len(compact_json(step.state))}
    first = {one.key: Samples() for one in entered}
    saved = {one.key: Samples() for one in entered}
    restored = {one.key: Samples() for one in entered}
    last_ids: dict[str, str] = {}
    for one in entered:
        settle()
        await first[one.key].time(one.save(SESSION, step))
    for _ in range(saves):
        step = conversation.advance()
        for one in shuffled(entered, order):
            last_ids[one.key] = await saved[one.key].time(one.save(SESSION, step))
    for one in entered:
        if await one.restore(SESSION, last_ids[one.key]) != conversation.state:
            raise AssertionError(f"{one.key} restored another state than was saved")
    for _ in range(plan.restores):
        for one in shuffled(entered, order):
            settle()
            await restored[one.key].time(one.restore(SESSION, last_ids[one.key]))
    result["contenders"] = {
        one.key: {
            "durability": await one.durability(),
            "first_save": first[one.key].summary(),
            "save": saved[one.key].summary(),
            "restore": restored[one.key].summary(),
        }
        for one in entered
    }
    return result
