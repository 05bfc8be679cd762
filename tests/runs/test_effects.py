"""Effects: written down before they are carried out, at most once per decision, and never silently repeated."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import (
    ConflictError,
    EffectBlockedError,
    EffectNotDoneError,
    EffectState,
    EffectUnknownError,
    SyncClient,
    SyncRun,
    UnsupportedValueError,
    UsageError,
)
from support import Store

KINDS = ("idempotent", "reversible", "irreversible")


class Bank:
    """The outside world: it remembers what was done, whatever the store says."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.keys: list[str] = []
        self.refunded: list[object] = []
        self.dies = False

    def pay(self, to: str, amount: int, ref: object = None, *, idempotency_key: str) -> str:
        self.keys.append(idempotency_key)
        self.paid.append((to, amount))
        if self.dies:
            raise KeyboardInterrupt  # as if the process went, after the payment and before anybody heard of it
        return f"receipt {len(self.paid)}"

    def find(self, to: str, amount: int, ref: object = None, *, idempotency_key: str) -> str | None:
        return "found" if idempotency_key in self.keys else None

    def refund(self, receipt: object) -> None:
        self.refunded.append(receipt)


@pytest.fixture
def bank() -> Bank:
    return Bank()


def crashed(client: SyncClient, bank: Bank, **options: Any) -> None:
    """A payment whose program died in it."""
    bank.dies = True
    with pytest.raises(KeyboardInterrupt), client.run("s", agent_id="buyer") as run:
        run.effect("pay", bank.pay, "bob", 500, **options)
    bank.dies = False


def pay(run: SyncRun, bank: Bank, to: str = "bob", amount: int = 500, **options: Any) -> object:
    return run.effect("pay", bank.pay, to, amount, **options)


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
        with pytest.raises(EffectUnknownError, match="nobody knows") as told, client.run("s") as run:
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

    def find(*_: object, **__: object) -> None:
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


def test_one_whose_result_can_not_be_kept_is_done_all_the_same(client: SyncClient):
    done = []
    with pytest.raises(UnsupportedValueError), client.run("s") as run:
        run.effect("pay", lambda: done.append(1) or object())
    with client.run("s") as run:
        assert run.effect("pay", lambda: done.append(1)) is None
    assert len(done) == 1
    assert "could not be kept" in client.effects()[0].error


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


# -- rollback and fork -----------------------------------------------------------------------------------------------


def paid_and_rolled_back(client: SyncClient, bank: Bank, **options: Any) -> str:
    with client.run("s") as run:
        before = run.save("before")
        run.effect("pay", bank.pay, **({"to": "bob", "amount": 500} | options))
    client.rollback("s", before)
    return before


def test_an_irreversible_one_is_blocked_after_a_rollback(client: SyncClient, bank: Bank):
    paid_and_rolled_back(client, bank)
    for _ in range(2):
        with pytest.raises(EffectBlockedError, match="carried out already") as told, client.run("s") as run:
            pay(run, bank)
    assert told.value.effects[0].result == "receipt 1"
    assert len(bank.paid) == 1


@pytest.mark.parametrize("kind", ["idempotent", "reversible"])
def test_another_one_is_replayed_after_a_rollback(client: SyncClient, bank: Bank, kind: str):
    paid_and_rolled_back(client, bank, kind=kind)
    with client.run("s") as run:
        assert pay(run, bank, kind=kind) == "receipt 1"
    assert len(bank.paid) == 1


def test_a_fork_is_treated_the_same(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        before = run.save("before")
        pay(run, bank)
    client.fork(before, "t")
    with pytest.raises(EffectBlockedError), client.run("t") as run:
        pay(run, bank)
    client.fork(client.latest(session_id="s").checkpoint_id, "u")
    with client.run("u") as run:  # forked behind it: it is part of its past
        assert pay(run, bank) == "receipt 1"
    assert len(bank.paid) == 1


def test_what_the_caller_decides_is_done(client: SyncClient, bank: Bank):
    before = paid_and_rolled_back(client, bank)
    with client.run("s") as run:
        assert pay(run, bank, on_repeat="replay") == "receipt 1"
    client.rollback("s", before)
    for _ in range(2):
        with client.run("s") as run:
            assert pay(run, bank, on_repeat="again") == "receipt 2"
    assert bank.keys[0] != bank.keys[1]
    client.rollback("s", before)
    with client.run("s") as run:
        assert pay(run, bank, on_repeat="compensate", undo=bank.refund) == "receipt 3"
    assert bank.refunded == ["receipt 2"]
    assert len(set(bank.keys)) == 3
    client.rollback("s", before)
    with pytest.raises(UsageError, match="undo"), client.run("s") as run:
        pay(run, bank, on_repeat="compensate")


def test_an_undo_that_was_interrupted_is_in_doubt(client: SyncClient, bank: Bank):
    paid_and_rolled_back(client, bank)

    def refund(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        pay(run, bank, on_repeat="compensate", undo=refund)
    with pytest.raises(EffectUnknownError, match="undone"), client.run("s") as run:
        pay(run, bank, on_repeat="compensate", undo=bank.refund)
    [effect] = client.effects(in_doubt=True)
    client.resolve_effect(effect.effect_id, "done", by="ann")
    with client.run("s") as run:
        assert pay(run, bank, on_repeat="compensate", undo=bank.refund) == "receipt 2"


def test_the_key_is_the_same_on_every_branch(client: SyncClient, bank: Bank):
    before = paid_and_rolled_back(client, bank, kind="idempotent")
    client.fork(before, "t")
    with client.run("t") as run:
        run.effect("pay", bank.pay, "bob", 501, kind="idempotent")
        assert client.effects("t")[0].provider_key != bank.keys[0]
        assert pay(run, bank, kind="idempotent") == "receipt 1"


def test_two_branches_at_once_carry_it_out_once(store: Store, bank: Bank):
    client = store.client()
    before = client.save("a", session_id="s0")
    for n in range(1, 5):
        client.fork(before, f"s{n}")

    def branch(n: int) -> str:
        try:
            with store.client().run(f"s{n}") as run:
                return str(pay(run, bank))
        except (EffectBlockedError, EffectUnknownError) as error:
            return type(error).__name__

    with ThreadPoolExecutor(5) as pool:
        results = list(pool.map(branch, range(5)))
    assert len(bank.paid) == 1
    assert results.count("receipt 1") == 1


# -- arguments that were made anew -----------------------------------------------------------------------------------


class TestRegeneratedArguments:
    def test_in_another_order_it_is_the_same(self, client: SyncClient):
        sent = []

        def send(message: dict[str, Any]) -> None:
            sent.append(message)

        with client.run("s") as run:
            before = run.save("before")
            run.effect("send", send, {"to": "bob", "body": {"a": 1, "b": [{"x": 1, "y": 2}]}})
        client.rollback("s", before)
        with pytest.raises(EffectBlockedError), client.run("s") as run:
            run.effect("send", send, {"body": {"b": [{"y": 2, "x": 1}], "a": 1}, "to": "bob"})
        assert len(sent) == 1

    @pytest.mark.parametrize("options", [{"identity": ("to", "amount")}, {"volatile": "ref"}, {}])
    def test_with_a_new_uuid_it_is_the_same_or_suspect(self, client: SyncClient, bank: Bank, options: dict[str, Any]):
        paid_and_rolled_back(client, bank, ref=uuid.uuid4(), **options)
        with pytest.raises(EffectBlockedError), client.run("s") as run:
            run.effect("pay", bank.pay, "bob", 500, ref=uuid.uuid4(), **options)
        assert len(bank.paid) == 1

    def test_with_another_amount_somebody_has_to_look(self, client: SyncClient, bank: Bank):
        paid_and_rolled_back(client, bank, identity=("to", "amount"))
        with pytest.raises(EffectBlockedError, match="other arguments") as told, client.run("s") as run:
            pay(run, bank, amount=501, identity=("to", "amount"))
        assert len(bank.paid) == 1
        [suspect] = told.value.effects
        client.resolve_effect(suspect.effect_id, "acknowledge", by="ann")
        with client.run("s") as run:
            assert pay(run, bank, amount=501, identity=("to", "amount")) == "receipt 2"
        with pytest.raises(EffectBlockedError), client.run("s") as run:  # the acknowledged one itself stays done
            pay(run, bank, amount=501, identity=("to", "amount"))
            pay(run, bank, identity=("to", "amount"))

    def test_after_a_crash_in_doubt_it_is_suspect_too(self, client: SyncClient, bank: Bank):
        crashed(client, bank)
        with pytest.raises(EffectBlockedError), client.run("s") as run:
            pay(run, bank, amount=499)
        assert len(bank.paid) == 1

    def test_the_caller_may_know_better(self, client: SyncClient, bank: Bank):
        paid_and_rolled_back(client, bank)
        with client.run("s") as run:
            assert pay(run, bank, to="alice", on_suspect="go") == "receipt 2"

    def test_on_a_straight_line_nothing_is_suspect(self, client: SyncClient, bank: Bank):
        for _ in range(2):
            with client.run("s") as run:
                for amount in range(5):
                    pay(run, bank, amount=amount)
        assert len(bank.paid) == 5

    def test_a_one_time_token_is_not_used_again(self, client: SyncClient):
        used = []
        with client.run("s") as run:
            before = run.save("before")
            run.effect("redeem", used.append, "t-1")
        client.rollback("s", before)
        client.fork(before, "t")
        for session in ("s", "t"):
            with pytest.raises(EffectBlockedError), client.run(session) as run:
                run.effect("redeem", used.append, "t-1")
        assert used == ["t-1"]


# -- keys ------------------------------------------------------------------------------------------------------------


def test_a_loop_that_goes_on_from_its_state_names_its_calls(client: SyncClient, bank: Bank):
    """An agent's tool calls have ids of their own: they say which call it is, and the same payment may be made again."""
    with client.run("s") as run:
        pay(run, bank, key="call-1")
        run.state["turn"] = 1
    with client.run("s") as run:
        assert run.state["turn"] == 1
        assert pay(run, bank, key="call-2") == "receipt 2"
        assert pay(run, bank, key="call-1") == "receipt 1"
    assert len(set(bank.keys)) == 2


def test_after_a_rollback_a_call_with_another_id_is_the_same_effect(client: SyncClient, bank: Bank):
    paid_and_rolled_back(client, bank, key="call-1")
    with pytest.raises(EffectBlockedError), client.run("s") as run:
        pay(run, bank, key="call-9")
    assert len(bank.paid) == 1


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
            {"on_suspect": "shrug"}, {"too": 1}, {"probe": "bank.find"}, {"undo": "bank.refund"},
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
        with pytest.raises(EffectBlockedError, match=r"this run has called, .* has the same arguments") as told:
            run.effect("send", send, "bob")
    assert told.value.effects == (in_doubt,)
