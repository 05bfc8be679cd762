"""`key=` is the identity of an effect; and options that exclude each other are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from bank import Bank, crashed, pay
from stores import Store

from holdfast import EffectBlockedError, EffectUnknownError, SyncClient, SyncRun, UsageError


def test_the_same_key_is_the_same_effect_whatever_the_arguments_are(client: SyncClient, bank: Bank):
    crashed(client, bank, key="order-1")
    with client.run("s", agent_id="buyer") as run:
        with pytest.raises(EffectUnknownError):
            pay(run, bank, amount=501, key="order-1")
        assert pay(run, bank, key="order-2") == "receipt 2"
        assert pay(run, bank, amount=7, key="order-2") == "receipt 2"
    assert len(bank.paid) == 2


def test_after_a_rollback_it_is_the_same_effect_with_the_same_provider_key(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        before = run.save("before")
        pay(run, bank, key="order-1", kind="idempotent")
        pay(run, bank, key="order-2")
    client.rollback("s", before)
    [first] = [one for one in client.effects("s") if one.identity == {"key": "order-1"}]
    with client.run("s") as run:
        with pytest.raises(EffectBlockedError, match="carried out already"):
            pay(run, bank, amount=501, key="order-2")
        assert pay(run, bank, amount=501, key="order-1", kind="idempotent") == "receipt 1"
    assert first.provider_key == bank.keys[0]
    assert len(bank.paid) == 2


def test_its_arguments_need_not_be_values_that_can_be_kept(quick: SyncClient):
    done: list[object] = []
    for _ in range(2):
        with quick.run("s") as run:
            run.effect("hand over", done.append, object(), key="parcel-1")
    assert len(done) == 1


def test_with_await_too(store: Store, bank: Bank):
    async def program() -> None:
        async with store.async_client() as client:
            for amount in (500, 501):
                async with client.run("s") as run:
                    assert await run.effect("pay", bank.pay, "bob", amount, key="order-1") == "receipt 1"

    asyncio.run(program())
    assert bank.paid == [("bob", 500)]


def from_a_step(run: SyncRun, bank: Bank) -> None:
    run.step("month", lambda: pay(run, bank, key="order-1"))


def from_the_top(run: SyncRun, bank: Bank) -> None:
    pay(run, bank, key="order-1")


@pytest.mark.parametrize(
    "programs", [(from_a_step, from_the_top), (from_the_top, from_a_step), (lambda run, bank: None, from_a_step)]
)
def test_a_call_that_was_moved_is_found_by_its_key(
    quick: SyncClient, bank: Bank, programs: tuple[Callable[[SyncRun, Bank], None], ...]
):
    for program in programs:
        with quick.run("s") as run:
            program(run, bank)
    with quick.run("s") as run:
        from_a_step(run, bank)
        from_the_top(run, bank)
    assert bank.paid == [("bob", 500)]


def test_in_two_tasks_and_two_sub_agents_the_same_key_is_two_effects(client: SyncClient, bank: Bank):
    def program(run: SyncRun) -> None:
        for task in run.tasks("orders", ["a", "b"]):
            pay(run, bank, task.id, key="welcome")
        for task in run.tasks("refunds", ["a"]):
            pay(run, bank, task.id, key="welcome")
        for id_ in ("c", "d"):
            with run.subagent("payer", subagent_id=id_) as payer:
                pay(payer, bank, id_, key="welcome")
        pay(run, bank, "e", key="welcome")

    for _ in range(2):
        with client.run("s") as run:
            program(run)
    assert [to for to, _ in bank.paid] == ["a", "b", "a", "c", "d", "e"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": "k", "identity": ("to",)}, "key="),
        ({"key": "k", "volatile": "ref"}, "key="),
        ({"identity": ("to", "amount"), "volatile": "to"}, "'to' is in identity= and in volatile="),
        ({"on_repeat": "compensate"}, "undo"),
        ({"kind": "read", "approve": "finance"}, "approve="),
        ({"kind": "read", "probe": Bank.find}, "probe="),
        ({"kind": "read", "undo": Bank.refund}, "undo="),
        ({"kind": "read", "on_repeat": "again"}, "on_repeat="),
        ({"kind": "read", "identity": ("to",)}, "identity="),
        ({"kind": "read", "not_done": (OSError,)}, "not_done="),
        ({"on_suspect": "go"}, "on_suspect"),
    ],
)
def test_options_that_exclude_each_other_are_refused(quick: SyncClient, bank: Bank, options: dict[str, Any], says: str):
    with quick.run("s") as run, pytest.raises(UsageError, match=says):
        pay(run, bank, **options)
    assert (bank.paid, quick.effects()) == ([], [])


def test_a_tool_has_no_key_and_no_options_that_exclude_each_other(quick: SyncClient):
    with quick.run("s") as run:
        for wrong in ({"key": "k"}, {"kind": "read", "approve": True}, {"identity": "to", "volatile": "to"}):
            with pytest.raises(UsageError, match=r"key|read|volatile"):
                run.tool(**wrong)(lambda to: None)
