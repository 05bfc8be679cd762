"""Effects: written down before they are carried out, at most once per decision, and never silently repeated."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from bank import Bank, crashed, pay
from stores import Store

from holdfast import (
    ConflictError,
    EffectBlockedError,
    EffectNotDoneError,
    EffectState,
    EffectUnknownError,
    SyncClient,
    UsageError,
)

pytestmark = pytest.mark.every_store

KINDS = ("idempotent", "reversible", "irreversible")


# -- once ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_effect_is_carried_out_once_and_its_result_given_again(client: SyncClient, bank: Bank, kind: str):
    for _ in range(3):
        with client.run("s", agent_id="buyer") as run:
            assert pay(run, bank, kind=kind) == "receipt 1"
    [effect] = client.effects("s")
    assert (effect.state, effect.tool, effect.kind, effect.agent_id) == ("done", "pay", kind, "buyer")
    assert (effect.arguments, effect.result) == ({"to": "bob", "amount": 500, "ref": None}, "receipt 1")
    assert effect.provider_key == bank.keys[0]
    assert [event.what for event in effect.history] == ["started", "done"]
    assert client.get(effect.checkpoint_id).session_id == "s"
    assert len(bank.paid) == 1


def test_twice_in_a_program_is_twice(client: SyncClient, bank: Bank):
    for _ in range(2):
        with client.run("s") as run:
            assert [pay(run, bank), pay(run, bank)] == ["receipt 1", "receipt 2"]
    assert len(set(bank.keys)) == 2


def test_a_read_is_a_step(client: SyncClient):
    seen = []
    for _ in range(2):
        with client.run("s") as run:
            assert run.effect("look", lambda: seen.append(1) or "there", kind="read") == "there"
    assert (len(seen), client.effects()) == (1, [])


def test_the_intent_is_there_before_the_call(client: SyncClient):
    states = []
    with client.run("s") as run:
        run.effect("pay", lambda: states.append(client.effects("s")[0].state))
    assert states == [EffectState.STARTED]


# -- writes ----------------------------------------------------------------------------------------------------------


def test_one_write_for_a_step_and_two_for_an_effect(store: Store, bank: Bank):
    client, recorder = store.recorded()
    with client.run("s") as run:
        run.step("warm", lambda: 1)
        for work, writes in (
            (lambda: run.step("one", lambda: 1), 1),
            (lambda: pay(run, bank), 2),
            (lambda: pay(run, bank, kind="idempotent", amount=3), 2),
            (lambda: run.effect("look", lambda: 1, kind="read"), 1),
            (lambda: run.step("again", lambda: list(range(1000))), 1),
        ):
            recorder.forget()
            work()
            assert len(recorder.commits) == writes, recorder.commits
    with client.run("s") as run:
        recorder.forget()
        run.step("one", lambda: 1)
        pay(run, bank)
        assert recorder.commits == []


# -- in doubt --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reversible", "irreversible"])
def test_one_in_doubt_is_reported_and_not_repeated(store: Store, bank: Bank, kind: str):
    crashed(store.client(), bank, kind=kind)
    client = store.client()
    for _ in range(2):
        with pytest.raises(EffectUnknownError, match="it is unknown") as told, client.run("s") as run:
            pay(run, bank, kind=kind)
    assert told.value.effect.tool == "pay"
    [effect] = client.effects(in_doubt=True)
    assert (effect.is_in_doubt, effect.effect_id) == (True, told.value.effect.effect_id)
    assert len(bank.paid) == 1


def test_an_idempotent_one_is_repeated_with_the_same_key(store: Store, bank: Bank):
    crashed(store.client(), bank, kind="idempotent")
    with store.client().run("s") as run:
        assert pay(run, bank, kind="idempotent") == "receipt 2"
    assert bank.keys[0] == bank.keys[1]
    [effect] = store.client().effects()
    assert (effect.attempts, effect.state) == (2, "done")


def test_a_probe_that_finds_it_gives_the_result(store: Store, bank: Bank):
    crashed(store.client(), bank)
    for _ in range(2):
        with store.client().run("s") as run:
            assert pay(run, bank, probe=bank.find) == "found"
    assert len(bank.paid) == 1


def test_a_probe_that_finds_nothing_lets_it_be_carried_out(store: Store, bank: Bank):
    crashed(store.client(), bank)
    bank.keys.clear()  # the bank never heard of it
    for _ in range(2):
        with store.client().run("s") as run:
            assert pay(run, bank, probe=bank.find) == "receipt 2"
    assert [event.what for event in store.client().effects()[0].history][:2] == ["started", "probe: not done"]


def test_a_probe_that_fails_leaves_it_in_doubt(store: Store, bank: Bank):
    crashed(store.client(), bank)

    def find(*_: object, **__: object) -> object:
        raise ConnectionError("the bank is closed")

    with pytest.raises(EffectUnknownError, match="the bank is closed"), store.client().run("s") as run:
        pay(run, bank, probe=find)
    assert len(bank.paid) == 1


@pytest.mark.parametrize("outcome", ["done", "not_done"])
def test_a_person_says_what_happened(store: Store, bank: Bank, outcome: str):
    crashed(store.client(), bank)
    client = store.client()
    [effect] = client.effects(in_doubt=True)
    client.resolve_effect(effect.effect_id, outcome, result="I saw it", by="ann", note="called the bank")
    for _ in range(2):
        with store.client().run("s") as run:
            assert pay(run, bank) == ("I saw it" if outcome == "done" else "receipt 2")
    [effect] = client.effects()
    assert ("ann", "called the bank") in [(event.by, event.note) for event in effect.history]
    with pytest.raises(ConflictError, match="not in doubt"):
        client.resolve_effect(effect.effect_id, "done", by="ann")


def test_one_that_is_being_carried_out_can_not_be_resolved(store: Store):
    client, other = store.client(), store.client()

    def work() -> None:
        [effect] = other.effects()
        with pytest.raises(ConflictError, match="right now"):
            other.resolve_effect(effect.effect_id, "not_done", by="ann")

    with client.run("s") as run:
        run.effect("work", work)


def test_no_time_makes_one_certain(store: Store, bank: Bank, clock):
    client = store.client()
    clock.rules(client)
    crashed(client, bank)
    clock.forward(10 * 365 * 86400)
    with pytest.raises(EffectUnknownError), client.run("s") as run:
        pay(run, bank)
    assert len(bank.paid) == 1


# -- exceptions ------------------------------------------------------------------------------------------------------


def test_an_exception_leaves_it_in_doubt(client: SyncClient, bank: Bank):
    def times_out(to: str) -> None:
        bank.paid.append((to, 1))
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError), client.run("s") as run:
        run.effect("pay", times_out, "bob")
    assert client.effects()[0].state == "unknown"
    assert "no answer" in client.effects()[0].error
    with pytest.raises(EffectUnknownError), client.run("s") as run:
        run.effect("pay", times_out, "bob")
    assert len(bank.paid) == 1


@pytest.mark.parametrize("error", [EffectNotDoneError("closed"), ConnectionRefusedError("closed")])
def test_one_that_certainly_was_not_done_may_be_tried_again(client: SyncClient, bank: Bank, error: Exception):
    tries = []

    def pays() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise error
        return "paid"

    with pytest.raises(type(error)), client.run("s") as run:
        run.effect("pay", pays, not_done=[ConnectionRefusedError])
    assert client.effects()[0].state == "failed"
    with client.run("s") as run:
        assert run.effect("pay", pays, not_done=[ConnectionRefusedError]) == "paid"
    assert len(tries) == 2


def test_a_failure_that_the_program_went_on_from_is_raised_again(client: SyncClient):
    tries = []

    def pays() -> None:
        tries.append(1)
        raise EffectNotDoneError("declined")

    for _ in range(2):
        with client.run("s") as run:
            with pytest.raises(Exception, match="declined"):
                run.effect("pay", pays)
            run.step("another way", lambda: 1)
    assert len(tries) == 1


def test_a_result_that_could_not_be_saved_leaves_it_in_doubt(memory_store: Store, bank: Bank):
    client, recorder = memory_store.recorded()

    def breaks(commits):
        if any(commit.record is not None for commit in commits):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        recorder.before_commit = breaks
        pay(run, bank)
    recorder.before_commit = None
    with pytest.raises(EffectUnknownError), memory_store.client().run("s") as run:
        pay(run, bank)
    assert len(bank.paid) == 1


# -- keys ------------------------------------------------------------------------------------------------------------


def test_a_loop_that_goes_on_from_its_state_names_its_calls(client: SyncClient, bank: Bank):
    """An agent's tool calls have ids of their own: they say which call it is, and the same payment
    may be made again."""
    with client.run("s") as run:
        pay(run, bank, key="call-1")
        run.state["turn"] = 1
    with client.run("s") as run:
        assert run.state["turn"] == 1
        assert pay(run, bank, key="call-2") == "receipt 2"
        assert pay(run, bank, key="call-1") == "receipt 1"
    assert len(set(bank.keys)) == 2


def test_parallel_effects(store: Store, bank: Bank):
    async def program() -> None:
        async with store.async_client() as client:
            for _ in range(2):
                async with client.run("s") as run:
                    found = await asyncio.gather(*[run.effect("pay", bank.pay, "bob", n) for n in range(10)])
                    assert len(set(found)) == 10

    asyncio.run(program())
    assert sorted(bank.paid) == [("bob", n) for n in range(10)]


def test_tools_are_effects_and_their_schemas_are_part_of_checkpoints(client: SyncClient, bank: Bank):
    def program(**more: Any) -> tuple[str, ...]:
        with client.run("s") as run:

            @run.tool(kind="irreversible", identity=("to", "amount"), **more)
            def pay(to: str, amount: int, ref: object = None, *, idempotency_key: str) -> str:
                return bank.pay(to, amount, idempotency_key=idempotency_key)

            assert pay("bob", 5, ref=uuid.uuid4()) == "receipt 1"
            return run.changed_tools

    assert [program(), program(), program(volatile=("ref",))] == [(), (), ("pay",)]
    assert len(bank.paid) == 1


def test_arguments_that_can_not_be_right(quick: SyncClient, bank: Bank):
    with quick.run("s") as run:
        for wrong in (
            {"kind": "maybe"}, {"on_repeat": "sometimes"}, {"identity": ("whom",)}, {"volatile": ("whom",)},
            {"too": 1}, {"probe": "bank.find"}, {"undo": "bank.refund"},
            {"probe": lambda to: None},
        ):  # fmt: skip
            with pytest.raises(UsageError):
                pay(run, bank, **wrong)
        with pytest.raises(UsageError, match="identity"):
            run.effect("x", lambda what: None, object())
        assert run.effect("x", lambda what: 1, object(), volatile="what") == 1
    assert bank.paid == []
    with pytest.raises(UsageError):
        quick.resolve_effect("01939c5e-7c1b-7000-8a2f-0c4c1d9be2f1", "perhaps", by="me")
    with pytest.raises(UsageError, match="not an effect's id"):
        quick.resolve_effect("c1d9be2f1", "done", by="me")


def test_a_call_again_in_the_run_that_saw_it_fail_is_told_that_this_run_made_it(quick: SyncClient):
    def send(to: str) -> None:
        raise TimeoutError("no answer")

    with quick.run("s") as run:
        with pytest.raises(TimeoutError):
            run.effect("send", send, "bob")
        [in_doubt] = quick.effects("s", in_doubt=True)
        with pytest.raises(EffectUnknownError) as unknown:
            run.effect("send", send, "bob")
        with pytest.raises(EffectBlockedError, match=r"there was no rollback.* has other arguments") as blocked:
            run.effect("send", send, "bobby")
    assert unknown.value.effect == in_doubt
    assert blocked.value.effects == (in_doubt,)


def test_a_tool_that_can_not_be_right_is_refused_when_it_is_declared(quick: SyncClient):
    with quick.run("s") as run:
        for wrong in ({"kind": "maybe"}, {"idenity": ("to",)}):
            with pytest.raises(UsageError, match=r"kind|no option 'idenity'"):
                run.tool(**wrong)(lambda to: None)
        with pytest.raises(UsageError, match="no tool"):
            run.tool("pay")
        assert run._core.tools == {}
