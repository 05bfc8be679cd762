"""Workload A on servers: a conversation grows by one step per save; all contenders save each step before the next."""

from collections import defaultdict
from typing import Any

from benchmarks.contenders.contender import opened
from benchmarks.conversation import compact_json
from benchmarks.server_plan import ServerPlan
from benchmarks.workloads.growing import Collected, Race


async def run(plan: ServerPlan) -> dict[str, Any]:
    return {str(steps): await _run_size(plan, steps, rounds) for steps, rounds in plan.growing_steps.items()}


async def _run_size(plan: ServerPlan, steps: int, rounds: int) -> dict[str, Any]:
    collected: dict[str, Collected] = defaultdict(Collected)
    result: dict[str, Any] = {"rounds": rounds}
    for number in range(rounds):
        entered = plan.field.growing()
        for one in entered:
            one.server.clear()
        async with opened(entered):
            race = Race(entered, plan, number, collected)
            final = await race.save(steps)
            await race.read(final)
        result["final_json_bytes"] = len(compact_json(final))
        for one in entered:
            collected[one.key].bytes_on_disk = one.bytes_on_disk()
    result["contenders"] = {key: one.summary(result["final_json_bytes"]) for key, one in collected.items()}
    return result
