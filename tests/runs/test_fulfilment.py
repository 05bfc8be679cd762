"""A fulfilment program with frequent crashes: each order is paid and shipped once.

A person resolves unknown outcomes and approves waiting calls. There are no rollbacks.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from holdfast import ApprovalPendingError, EffectBlockedError, EffectUnknownError, SyncClient, SyncRun

ORDERS = [f"order-{number}" for number in range(5)]


class Dies(BaseException):
    """The program dies of it."""


class NotEnoughFunds(Exception):  # noqa: N818 - as programs call it
    pass


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.done: Counter[tuple[str, str]] = Counter()
        self.kills = 0

    def do(self, what: str, order: str) -> str:
        self.maybe_die(0.15)
        if self.rng.random() < 0.08:
            raise NotEnoughFunds(order)
        self.done[what, order] += 1
        if self.rng.random() < 0.06:
            raise ConnectionError("no answer")
        self.maybe_die(0.15)
        return f"{what} of {order}"

    def maybe_die(self, chance: float) -> None:
        if self.rng.random() < chance:
            self.kills += 1
            raise Dies


def patient(ask: Any, name: str, *args: Any, **options: Any) -> object:
    """Tries again what certainly was not done."""
    while True:
        try:
            return ask(name, *args, not_done=NotEnoughFunds, **options)
        except NotEnoughFunds:
            continue


def fulfil(run: SyncRun, world: World) -> int:
    """How many effects are still open. It goes on behind each."""
    left = 0

    def tried(ask: Any, name: str, order: str, **options: Any) -> bool:
        try:
            done = patient(ask, name, world.do, name, order, **options)
        except (EffectUnknownError, ApprovalPendingError, ConnectionError):
            return False
        assert done == f"{name} of {order}"
        return True

    for task in run.tasks("payments", ORDERS, retry_failed=True):
        if not tried(run.effect, "pay", task.id):
            left += 1
            task.fail("open")
    for order in world.rng.sample(ORDERS, len(ORDERS)):
        world.maybe_die(0.03)
        left += not tried(run.effect, "ship", order, key=order)
        left += not tried(run.effect, "tell", order, identity="order")
        with run.subagent("clerk", subagent_id=order) as clerk:
            left += not tried(clerk.effect, "file", order)
        left += not tried(run.effect, "refund", order, key=order, approve="finance")
    return left


def decide_all(client: SyncClient, world: World) -> None:
    for effect in client.effects("s", in_doubt=True):
        what, order = effect.arguments["what"], effect.arguments["order"]
        if world.done[what, order]:
            client.resolve_effect(effect.effect_id, "done", result=f"{what} of {order}", by="ann")
        else:
            client.resolve_effect(effect.effect_id, "not_done", by="ann")
    for approval in client.approvals("s"):
        client.decide(approval.approval_id, "approve", by="ann")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_each_effect_is_carried_out_once_and_none_is_blocked(seed: int):
    world = World(seed)
    client = SyncClient.memory()
    for _ in range(400):
        try:
            with client.run("s", agent_id="clerk") as run:
                left = fulfil(run, world)
        except Dies:
            left = 1
        except EffectBlockedError as error:
            raise AssertionError(f"seed {seed}: blocked") from error
        if not left:
            break
        if world.rng.random() < 0.5:
            decide_all(client, world)
    else:
        raise AssertionError("no life came to its end")
    assert world.kills >= 2
    wanted = {(what, order): 1 for what in ("pay", "ship", "tell", "file", "refund") for order in ORDERS}
    assert dict(world.done) == wanted
