"""Approvals of effects: granted once for one call, through restarts, rollbacks and forks."""

from __future__ import annotations

import time

import pytest
from stores import python_process

from holdfast import (
    ApprovalError,
    ApprovalPendingError,
    ApprovalRejectedError,
    ApprovalStatus,
    EffectBlockedError,
    StakesPolicy,
)


class Bank:
    def __init__(self):
        self.paid = []

    def pay(self, to, amount, note=""):
        self.paid.append((to, amount))
        return f"receipt {len(self.paid)}"


def life(client, bank, amount=500, session_id="order-42", **options):
    """One life of a program that pays."""
    effect = {"identity": ("to", "amount"), "approve": "finance", **options.pop("effect", {})}
    with client.run(session_id, agent_id="buyer", **options) as run:
        run.step("plan", lambda: "a plan")
        return run.effect("pay", bank.pay, to="bob", amount=amount, **effect)


def granted(client, answer="approve", **options):
    [waiting] = client.approvals()
    return client.decide(waiting.approval_id, answer, by="ann", **options)


def test_a_run_that_waits_is_gone_on_with_once_somebody_has_approved(store):
    bank = Bank()
    for _ in range(2):  # each life finds the same request
        with pytest.raises(ApprovalPendingError):
            life(store.client(), bank)
    client = store.client()
    approval = granted(client)
    assert life(client, bank) == life(store.client(), bank) == "receipt 1"
    assert bank.paid == [("bob", 500)]
    used = client.approval(approval.approval_id)
    [effect] = client.effects("order-42")
    assert (used.status, used.used_by) == (ApprovalStatus.USED, effect.effect_id)
    assert effect.approval_id == approval.approval_id
    assert len(client.approvals(pending=False)) == 1


def test_a_rejection_ends_the_run_and_nothing_is_done(client):
    bank = Bank()
    with pytest.raises(ApprovalPendingError):
        life(client, bank)
    granted(client, "reject", note="bob has left")
    for _ in range(2):
        with pytest.raises(ApprovalRejectedError, match="bob has left"):
            life(client, bank)
    assert (bank.paid, client.approvals()) == ([], [])


def test_what_was_approved_with_other_arguments_is_what_is_done(store):
    bank = Bank()
    with pytest.raises(ApprovalPendingError):
        life(store.client(), bank)
    granted(store.client(), "modify", arguments={"to": "bob", "amount": 50, "note": "half"})
    for _ in range(2):
        assert life(store.client(), bank) == "receipt 1"
    assert bank.paid == [("bob", 50)]


def test_an_expired_approval_is_asked_for_again(client, clock):
    clock.rules(client)
    bank = Bank()
    with pytest.raises(ApprovalPendingError):
        life(client, bank)
    granted(client)
    clock.forward(25 * 3600)
    with pytest.raises(ApprovalPendingError):
        life(client, bank)
    assert bank.paid == []
    granted(client)
    assert life(client, bank) == "receipt 1"


def test_an_approval_of_one_amount_is_none_of_another(client):
    bank = Bank()
    with pytest.raises(ApprovalPendingError):
        life(client, bank)
    granted(client)
    with pytest.raises(ApprovalPendingError):  # the program was changed, or a model made it up anew
        life(client, bank, amount=501)
    assert bank.paid == []
    [waiting] = client.approvals()
    assert waiting.call.arguments["amount"] == 501


@pytest.mark.parametrize("decided", [True, False], ids=["granted", "waiting"])
def test_a_fork_asks_for_itself(client, decided):
    bank = Bank()
    with pytest.raises(ApprovalPendingError):
        life(client, bank)
    if decided:
        granted(client)
    client.fork(client.latest(session_id="order-42").checkpoint_id, "fork")
    with pytest.raises(ApprovalPendingError):
        life(client, bank, session_id="fork")
    assert bank.paid == []
    assert [one.session_id for one in client.approvals()] == (["fork"] if decided else ["order-42", "fork"])


def test_a_used_approval_is_not_revived_by_a_rollback(client):
    """A one-time token that was consumed stays consumed, whatever is restored."""
    bank = Bank()
    with pytest.raises(ApprovalPendingError):
        life(client, bank)
    before = client.latest(session_id="order-42").checkpoint_id
    approval = granted(client)
    life(client, bank)
    client.rollback("order-42", to=before)
    with pytest.raises(EffectBlockedError):
        life(client, bank)
    with pytest.raises(ApprovalPendingError):  # to do it once more is another decision
        life(client, bank, effect={"on_repeat": "again"})
    assert bank.paid == [("bob", 500)]
    [waiting] = client.approvals()
    assert waiting.approval_id != approval.approval_id
    with pytest.raises(ApprovalError, match="counts once"):
        client.use_approval(
            approval.approval_id, "order-42", "pay", dict(approval.arguments), identity=("to", "amount"), by="a thief"
        )
    granted(client)
    assert life(client, bank, effect={"on_repeat": "again"}) == "receipt 2"


def test_a_granted_approval_does_not_outlive_a_rollback(client):
    bank = Bank()
    with client.run("order-42", agent_id="buyer") as run:
        run.step("begin", lambda: None)
    first = client.latest(session_id="order-42").checkpoint_id
    with pytest.raises(ApprovalPendingError):
        life(client, bank)
    granted(client)
    report = client.rollback("order-42", to=first)
    assert len(report.approvals_voided) == 1
    with pytest.raises(ApprovalPendingError):
        life(client, bank)
    assert bank.paid == []


def test_a_policy_asks_where_stakes_are_high(client):
    bank = Bank()
    policy = StakesPolicy(lambda call: "high" if call.arguments["amount"] > 100 else "low", approvers="finance")
    free = {"approve": None, "undo": lambda receipt: None}
    assert life(client, bank, amount=5, session_id="small", policy=policy, effect=free) == "receipt 1"
    with pytest.raises(ApprovalPendingError):
        life(client, bank, session_id="large", policy=policy, effect=free)
    [waiting] = client.approvals()
    assert (waiting.gate, waiting.approvers, waiting.session_id) == ("propose", "finance", "large")
    assert life(client, bank, session_id="without", effect=free) == "receipt 2"  # nothing waits unless somebody says so


WAITS = """
    import sys
    from holdfast import SyncClient
    def pay(to, amount):
        print("paid", to, amount, flush=True)
        return "receipt"
    with SyncClient.open(sys.argv[1]) as client:
        with client.run("order-42", agent_id="buyer", approval_wait=None) as run:
            print("begun", flush=True)
            print(run.effect("pay", pay, to="bob", amount=500, approve="finance"), flush=True)
"""


def asked_by(process, client, seconds=240):
    """What the process asks for, once it does."""
    deadline = time.monotonic() + seconds
    while not (found := client.approvals()):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found[0]


def test_a_decision_of_another_process_lets_a_waiting_run_go_on(shared_store):
    client = shared_store.client()
    process = python_process(WAITS, shared_store.url)
    try:
        assert process.stdout.readline() == "begun\n"
        asked = asked_by(process, client)
        client.decide(asked.approval_id, "modify", by="ann", arguments={"to": "bob", "amount": 50})
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    assert out == "paid bob 50\nreceipt\n"


def test_a_waiting_run_that_is_killed_is_gone_on_with_by_another(shared_store):
    client = shared_store.client()
    killed = python_process(WAITS, shared_store.url)
    assert killed.stdout.readline() == "begun\n"
    try:
        asked = asked_by(killed, client)
    finally:
        killed.kill()
        killed.communicate(timeout=240)
    client.decide(asked.approval_id, "approve", by="ann")
    again = python_process(WAITS, shared_store.url)
    out, err = again.communicate(timeout=240)
    assert (again.returncode, err) == (0, "")
    assert out == "begun\npaid bob 500\nreceipt\n"
    assert [one.status for one in client.approvals(pending=False)] == ["used"]
