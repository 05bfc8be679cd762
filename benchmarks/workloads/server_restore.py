"""Workload R on servers: restoring a state of 10 KB, by its id and as the latest of its session."""

import random
from typing import Any

from benchmarks.contenders.contender import opened
from benchmarks.conversation import Conversation, compact_json
from benchmarks.measure import Samples, settle, shuffled
from benchmarks.server_plan import ServerPlan

SIZE = 10_000
SESSION = "restored"


async def run(plan: ServerPlan) -> dict[str, Any]:
    entered = plan.field.growing()
    for one in entered:
        one.server.clear()
    conversation = Conversation(seed=1)
    samples = {one.key: Samples() for one in entered}
    order = random.Random(1)
    async with opened(entered):
        ids: dict[str, str] = {}
        while True:
            step = conversation.advance()
            for one in entered:
                ids[one.key] = await one.save(SESSION, step)
            if len(compact_json(step.state)) >= SIZE:
                break
        for one in entered:
            if await one.restore(SESSION, ids[one.key]) != step.state:
                raise AssertionError(f"{one.key} restored another state than was saved")
        settle()
        for _ in range(plan.small_restores):
            for one in shuffled(entered, order):
                await samples[one.key].time(one.restore(SESSION, ids[one.key]))
    return {
        "json_bytes": len(compact_json(step.state)),
        "steps": step.number,
        "contenders": {key: {"restore": one.summary()} for key, one in samples.items()},
    }
