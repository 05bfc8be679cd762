"""Effects after a rollback and on a fork: what was done is not done again, whatever the arguments
are called this time."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bank import Bank, crashed, pay
from stores import Store

from holdfast import (
    EffectBlockedError,
    EffectUnknownError,
    SyncClient,
    UsageError,
)

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


def test_after_a_rollback_a_call_with_another_id_is_the_same_effect(client: SyncClient, bank: Bank):
    paid_and_rolled_back(client, bank, key="call-1")
    with pytest.raises(EffectBlockedError), client.run("s") as run:
        pay(run, bank, key="call-9")
    assert len(bank.paid) == 1


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
