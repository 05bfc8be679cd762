"""Forking the head of a short and of a long session: it should cost the same, in time and in bytes."""

import random
from typing import Any

from benchmarks.contenders.contender import kept_on_disk, opened
from benchmarks.contenders.holdfast_sqlite import HoldfastDeclared
from benchmarks.conversation import Conversation
from benchmarks.measure import Samples, settle, shuffled
from benchmarks.plan import Plan


async def run(plan: Plan) -> dict[str, Any]:
    stores = {steps: HoldfastDeclared(plan.stores / f"fork-{steps}") for steps in plan.fork_steps}
    with kept_on_disk(list(stores.values())):
        async with opened(list(stores.values())):
            heads = {steps: await _build(store, steps) for steps, store in stores.items()}
            times = {steps: Samples() for steps in stores}
            before = {steps: store.bytes_in_use() for steps, store in stores.items()}
            settle()
            order = random.Random(0)
            for number in range(plan.forks):
                for steps in shuffled(stores, order):
                    await times[steps].time(stores[steps].client.fork(heads[steps], session_id=f"fork-{number}"))
            return {
                str(steps): {
                    "fork": times[steps].summary(),
                    "bytes_per_fork": round((store.bytes_in_use() - before[steps]) / plan.forks),
                }
                for steps, store in stores.items()
            }


async def _build(store: HoldfastDeclared, steps: int) -> str:
    conversation = Conversation(seed=3)
    checkpoint_id = ""
    for _ in range(steps):
        checkpoint_id = await store.save("trunk", conversation.advance())
    return checkpoint_id
