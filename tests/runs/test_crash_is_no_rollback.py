"""A crash is not a rollback: one effect in doubt is not the doubt of another, unless the session
was moved in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from bank import Bank
from stores import Store

from holdfast import EffectBlockedError, EffectUnknownError, SyncClient, SyncRun

Program = Callable[[SyncRun, Bank], list[str]]


def told_of(pays: Callable[[], object]) -> str:
    try:
        return str(pays())
    except (EffectUnknownError, EffectBlockedError, ConnectionError) as error:
        return type(error).__name__


def by_key(run: SyncRun, bank: Bank) -> list[str]:
    return [told_of(lambda to=to: run.effect("pay", bank.pay, to, 5, key=to)) for to in "abc"]


def by_declared_identity(run: SyncRun, bank: Bank) -> list[str]:
    return [told_of(lambda to=to: run.effect("pay", bank.pay, to, 5, identity="to")) for to in "abc"]


def in_tasks(run: SyncRun, bank: Bank) -> list[str]:
    told = []
    for task in run.tasks("invoices", "abc"):
        told.append(told_of(lambda: run.effect("pay", bank.pay, "bob", 5)))
        if told[-1].endswith("Error"):
            task.fail(told[-1])
    return told


def by_subagents(run: SyncRun, bank: Bank) -> list[str]:
    told = []
    for to in "abc":
        with run.subagent("payer", subagent_id=to) as payer:
            told.append(told_of(lambda payer=payer: payer.effect("pay", bank.pay, "bob", 5)))
    return told


ALL = pytest.mark.parametrize("program", [by_key, by_declared_identity, in_tasks, by_subagents])


def die(client: SyncClient, bank: Bank, program: Program) -> None:
    """In the first payment."""
    bank.dies = True
    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        program(run, bank)
    bank.dies = False


@ALL
def test_after_a_crash_the_others_are_carried_out(store: Store, bank: Bank, program: Program):
    die(store.client(), bank, program)
    with store.client().run("s") as run:
        assert program(run, bank) == ["EffectUnknownError", "receipt 2", "receipt 3"]
    assert len(bank.paid) == len(set(bank.keys)) == 3


@ALL
def test_in_the_same_life_the_others_are_carried_out(client: SyncClient, program: Program):
    bank = Bank()
    fails = iter((True, False, False))
    pays = bank.pay

    def pay(to: str, amount: int, *, idempotency_key: str) -> str:
        receipt = pays(to, amount, idempotency_key=idempotency_key)
        if next(fails):
            raise ConnectionError("no answer")
        return receipt

    bank.pay = pay
    with client.run("s") as run:
        assert program(run, bank) == ["ConnectionError", "receipt 2", "receipt 3"]
    assert len(bank.paid) == 3


@pytest.mark.parametrize("inside", [in_tasks, by_subagents])
def test_an_equal_call_outside_of_the_task_or_sub_agent_is_carried_out(store: Store, bank: Bank, inside: Program):
    die(store.client(), bank, inside)
    with store.client().run("s") as run:
        assert inside(run, bank)[0] == "EffectUnknownError"
        assert run.effect("pay", bank.pay, "bob", 5) == "receipt 4"


@ALL
def test_after_a_rollback_they_wait_for_a_person(client: SyncClient, bank: Bank, program: Program):
    with client.run("s") as run:
        before = run.save("before")
        run.step("more", lambda: 1)
    die(client, bank, program)
    client.rollback("s", before)
    with client.run("s") as run:
        assert program(run, bank)[1:] == ["EffectBlockedError"] * 2
    assert len(bank.paid) == 1


@ALL
def test_on_a_fork_they_wait_for_a_person(client: SyncClient, bank: Bank, program: Program):
    die(client, bank, program)
    client.fork(client.latest(session_id="s").checkpoint_id, "t")
    with client.run("t") as run:
        assert program(run, bank)[1:] == ["EffectBlockedError"] * 2
    assert len(bank.paid) == 1
    with client.run("s") as run:  # the session itself was not moved
        assert program(run, bank)[1:] == ["receipt 2", "receipt 3"]


def test_the_error_says_which_of_the_two_it_was(client: SyncClient, bank: Bank):
    die(client, bank, lambda run, bank: [str(run.effect("pay", bank.pay, "bob", 5))])
    with client.run("s") as run, pytest.raises(EffectBlockedError, match="there was no rollback") as crashed:
        run.effect("pay", bank.pay, "bob", 6)
    assert "another branch" not in str(crashed.value)
    client.fork(client.latest(session_id="s").checkpoint_id, "t")
    with client.run("t") as run, pytest.raises(EffectBlockedError, match="on another branch or before a rollback"):
        run.effect("pay", bank.pay, "bob", 6)
    assert len(bank.paid) == 1


def test_a_rollback_that_was_undone_leaves_what_was_done_meanwhile_suspect(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        before = run.save("before")
        run.step("more", lambda: 1)
    client.rollback("s", before)
    die(client, bank, by_key)
    client.undo()
    with client.run("s") as run:
        assert by_key(run, bank)[1:] == ["EffectBlockedError"] * 2


def test_a_rollback_to_where_the_session_stands_is_one(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        before = run.save("before")
    bank.dies = True
    killed = client.run("s")
    with pytest.raises(KeyboardInterrupt):
        killed.effect("pay", bank.pay, "a", 5, key="a")
    bank.dies = False
    killed.lease.release()
    assert client.latest(session_id="s").checkpoint_id == before
    client.rollback("s", before)
    with client.run("s") as run:
        assert by_key(run, bank) == ["EffectUnknownError", "EffectBlockedError", "EffectBlockedError"]


def test_a_save_that_branches_off_counts_as_a_rollback(client: SyncClient, bank: Bank):
    with client.run("s", agent_id="a") as run:
        before = run.save("before")
    bank.dies = True
    with pytest.raises(KeyboardInterrupt), client.run("s", agent_id="a") as run:
        run.step("more", lambda: 1)
        by_key(run, bank)
    bank.dies = False
    client.save("a", session_id="s", parent_id=before, context=client.restore(before).agent_context)
    with client.run("s", agent_id="a") as run:
        assert by_key(run, bank)[1:] == ["EffectBlockedError"] * 2


def test_a_crash_of_a_fork_is_a_crash(client: SyncClient, bank: Bank):
    client.save("agent", session_id="r")
    client.fork(client.latest(session_id="r").checkpoint_id, "s")
    die(client, bank, by_key)
    with client.run("s") as run:
        assert by_key(run, bank) == ["EffectUnknownError", "receipt 2", "receipt 3"]


def test_many_checkpoints_after_a_crash_are_no_rollback(quick: SyncClient, bank: Bank, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.operations.lineage.PAGE", 7)
    die(quick, bank, by_key)
    with quick.run("s") as run:
        for number in range(60):
            run.step(f"step {number}", lambda: 1)
    with quick.run("s") as run:
        assert by_key(run, bank) == ["EffectUnknownError", "receipt 2", "receipt 3"]


def test_a_crash_after_a_rollback_is_a_crash(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        before = run.save("before")
        run.step("more", lambda: 1)
    client.rollback("s", before)
    with client.run("s") as run:
        run.step("other", lambda: 1)
    die(client, bank, by_key)
    with client.run("s") as run:
        assert by_key(run, bank)[1:] == ["receipt 2", "receipt 3"]


def test_with_await_too(store: Store, bank: Bank):
    async def pay(to: str, *, idempotency_key: str) -> str:
        receipt = bank.pay(to, 5, idempotency_key=idempotency_key)
        if len(bank.paid) == 1:
            raise asyncio.CancelledError
        return receipt

    async def program() -> list[object]:
        async with store.async_client() as client:
            with pytest.raises(asyncio.CancelledError):
                async with client.run("s") as run:
                    await run.effect("pay", pay, "a", key="a")
            async with client.run("s") as run:
                all_of_them = [run.effect("pay", pay, to, key=to) for to in "abc"]
                return await asyncio.gather(*all_of_them, return_exceptions=True)

    first, *others = asyncio.run(program())
    assert isinstance(first, EffectUnknownError)
    assert sorted(map(str, others)) == ["receipt 2", "receipt 3"]
