"""Calls that were renamed between two lives: `was=` finds them, else they are possible duplicates."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest
from bank import Bank
from stores import Store

from holdfast import EffectBlockedError, EffectUnknownError, SyncClient, SyncRun


def pay_all(run: SyncRun, bank: Bank, name: str, **options: Any) -> list[str]:
    return [str(run.effect("pay", bank.pay, task.id, 5)) for task in run.tasks(name, ["a", "b"], **options)]


def test_a_renamed_effect_is_a_possible_duplicate(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        run.effect("pay", bank.pay, "bob", 5)
    with client.run("s") as run, pytest.raises(EffectBlockedError, match="under another name") as blocked:
        run.effect("transfer", bank.pay, "bob", 5)
    assert "was='pay'" in str(blocked.value)
    assert bank.paid == [("bob", 5)]
    client.resolve_effect(blocked.value.effects[0].effect_id, "acknowledge", by="ann")
    with client.run("s") as run:
        assert run.effect("transfer", bank.pay, "bob", 5) == "receipt 2"


class Paying:
    """An object that is called as a function."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank

    def __call__(self, to: str, amount: int) -> Any:
        return self._bank.pay(to, amount, idempotency_key="none")


@pytest.mark.parametrize("how", ["partial", "object", "lambda"])
def test_whatever_is_called_a_renamed_effect_is_a_possible_duplicate(client: SyncClient, bank: Bank, how: str):
    ways = {
        "partial": functools.partial(bank.pay),
        "object": Paying(bank),
        "lambda": lambda to, amount: bank.pay(to, amount, idempotency_key="none"),
    }
    with client.run("s") as run:
        run.effect("pay", ways[how], "bob", 5)
    with client.run("s") as run, pytest.raises(EffectBlockedError):
        run.effect("transfer", ways[how], "bob", 5)
    assert len(bank.paid) == 1


def test_with_its_former_name_it_is_found(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        run.effect("pay", bank.pay, "bob", 5)
        run.effect("pay", bank.pay, "ann", 5, key="k")
    for was in ("pay", ("send money", "pay")):
        with client.run("s") as run:
            assert run.effect("transfer", bank.pay, "bob", 5, was=was) == "receipt 1"
            assert run.effect("transfer", bank.pay, "ann", 6, key="k", was=was) == "receipt 2"
    assert len(bank.paid) == 2


def test_with_its_former_name_it_is_still_in_doubt_and_has_its_provider_key(client: SyncClient, bank: Bank):
    bank.dies = True
    for kind in ("irreversible", "idempotent"):
        with pytest.raises(KeyboardInterrupt), client.run("s") as run:
            run.effect("pay", bank.pay, "bob", 5, kind=kind, key=kind)
    bank.dies = False
    with client.run("s") as run:
        with pytest.raises(EffectUnknownError):
            run.effect("transfer", bank.pay, "bob", 5, key="irreversible", was="pay")
        run.effect("transfer", bank.pay, "bob", 5, key="idempotent", kind="idempotent", was="pay")
    assert bank.keys[1] == bank.keys[2]
    assert len(set(bank.keys)) == 2


def test_one_in_doubt_that_was_renamed_is_a_possible_duplicate(client: SyncClient, bank: Bank):
    bank.dies = True
    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        run.effect("pay", bank.pay, "bob", 5)
    bank.dies = False
    with client.run("s") as run, pytest.raises(EffectBlockedError, match="under another name"):
        run.effect("transfer", bank.pay, "bob", 5)
    assert len(bank.paid) == 1


def in_a_task(run: SyncRun, bank: Bank, name: str) -> None:
    for _ in run.tasks("invoices", ["bob"]):
        run.effect(name, bank.pay, "bob", 5)


def in_a_subagent(run: SyncRun, bank: Bank, name: str) -> None:
    with run.subagent("payer", subagent_id="bob") as payer:
        payer.effect(name, bank.pay, "bob", 5)


@pytest.mark.parametrize("program", [in_a_task, in_a_subagent])
def test_so_is_one_in_a_task_or_sub_agent_that_runs_again(
    client: SyncClient, bank: Bank, program: Callable[[SyncRun, Bank, str], None]
):
    bank.dies = True
    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        program(run, bank, "pay")
    bank.dies = False
    with client.run("s") as run, pytest.raises(EffectBlockedError, match="under another name"):
        program(run, bank, "transfer")
    assert len(bank.paid) == 1


def test_so_is_one_that_was_done_in_a_sub_agent_that_runs_again(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        in_a_subagent(run, bank, "pay")
    with client.run("s") as run, pytest.raises(EffectBlockedError, match="under another name"):
        in_a_subagent(run, bank, "transfer")
    assert len(bank.paid) == 1


@pytest.mark.parametrize("name", ["pay", "bonus"])
def test_a_finished_task_or_sub_agent_need_not_ask_for_its_effects_again(client: SyncClient, bank: Bank, name: str):
    def program(run: SyncRun) -> None:
        in_a_task(run, bank, "pay")
        with run.subagent("payer", subagent_id="bob") as payer:
            if not payer.is_over:
                payer.effect("pay", bank.pay, "bob", 5)

    with client.run("s") as run:
        program(run)
    with client.run("s") as run:
        program(run)
        assert run.effect(name, bank.pay, "bob", 5) == "receipt 3"


def test_equal_effects_of_two_names_are_two_if_the_program_asks_for_both(client: SyncClient, bank: Bank):
    def program(run: SyncRun) -> None:
        run.effect("salary", bank.pay, "bob", 5)
        run.effect("bonus", bank.pay, "bob", 5)

    bank.dies = True
    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        program(run)
    bank.dies = False
    with client.run("s") as run:
        with pytest.raises(EffectUnknownError):
            run.effect("salary", bank.pay, "bob", 5)
        assert run.effect("bonus", bank.pay, "bob", 5) == "receipt 2"
    for _ in range(2):
        with client.run("t") as run:
            program(run)
    assert len(bank.paid) == 4


def test_a_renamed_list_of_tasks_is_not_silently_done_again(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        assert pay_all(run, bank, "files") == ["receipt 1", "receipt 2"]
    with client.run("s") as run, pytest.raises(EffectBlockedError, match="another list of tasks"):
        pay_all(run, bank, "documents")
    with client.run("s") as run:
        assert pay_all(run, bank, "documents", was="files") == []
    assert len(bank.paid) == 2


def test_a_renamed_list_of_tasks_goes_on_where_it_stopped(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        for task in run.tasks("files", ["a", "b"]):
            run.effect("pay", bank.pay, task.id, 5)
            if task.id == "b":
                break
    with client.run("s") as run:
        assert pay_all(run, bank, "documents", was=["papers", "files"]) == ["receipt 2"]
    assert len(bank.paid) == 2


def test_two_lists_of_tasks_may_do_the_same(client: SyncClient, bank: Bank):
    for _ in range(2):
        with client.run("s") as run:
            pay_all(run, bank, "salaries")
            pay_all(run, bank, "bonuses")
    assert len(bank.paid) == 4


def test_an_effect_in_a_renamed_step_or_sub_agent_is_a_possible_duplicate(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        run.step("month", lambda: run.effect("pay", bank.pay, "bob", 5))
        with run.subagent("payer") as payer:
            payer.effect("pay", bank.pay, "ann", 5)
    with client.run("s") as run:
        with pytest.raises(EffectBlockedError):
            run.step("monthly", lambda: run.effect("pay", bank.pay, "bob", 5))
        with pytest.raises(EffectBlockedError), run.subagent("accountant") as payer:
            payer.effect("pay", bank.pay, "ann", 5)
    with client.run("s") as run:
        assert run.step("monthly", lambda: run.effect("pay", bank.pay, "bob", 5), was="month") == "receipt 1"
    assert len(bank.paid) == 2


def test_a_step_that_was_renamed_while_it_was_under_way_finds_its_effects(client: SyncClient, bank: Bank):
    def month(run: SyncRun, *, dies: bool) -> object:
        receipt = run.effect("pay", bank.pay, "bob", 5)
        if dies:
            raise KeyboardInterrupt
        return receipt

    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        run.step("month", lambda: month(run, dies=True))
    with client.run("s") as run:
        assert run.step("monthly", lambda: month(run, dies=False), was="month") == "receipt 1"
    assert len(bank.paid) == 1


def test_with_await_too(store: Store, bank: Bank):
    async def program() -> None:
        async with store.async_client() as client:
            async with client.run("s") as run:
                await run.effect("pay", bank.pay, "bob", 5)
            async with client.run("s") as run:
                with pytest.raises(EffectBlockedError, match="under another name"):
                    await run.effect("transfer", bank.pay, "bob", 5)
                assert await run.effect("transfer", bank.pay, "bob", 5, was="pay") == "receipt 1"

    asyncio.run(program())
    assert len(bank.paid) == 1
