"""Effects that wait for approval: asked before they are carried out, used up with the intent, never inherited."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from stores import Clock, Store

from holdfast import (
    ApprovalError,
    ApprovalPendingError,
    ApprovalRejectedError,
    EffectBlockedError,
    EffectUnknownError,
    StakesPolicy,
    SyncClient,
    SyncRun,
    UsageError,
)


class Bank:
    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.dies = False

    def pay(self, to: str, amount: int) -> str:
        self.paid.append((to, amount))
        if self.dies:
            raise KeyboardInterrupt
        return f"{amount} to {to}"


@pytest.fixture
def bank() -> Bank:
    return Bank()


def pay(run: SyncRun, bank: Bank, amount: int = 500, **options: object) -> object:
    return run.effect("pay", bank.pay, "bob", amount, approve="finance", **options)


def asked(client: SyncClient, bank: Bank, amount: int = 500) -> str:
    """The approval that the payment waits for."""
    with pytest.raises(ApprovalPendingError), client.run("s") as run:
        pay(run, bank, amount)
    [waiting] = client.approvals("s")
    assert (waiting.approvers, waiting.call.arguments) == ("finance", {"to": "bob", "amount": amount})
    return waiting.approval_id


def test_nothing_is_done_before_somebody_agreed_and_then_once(store: Store, bank: Bank):
    client = store.client()
    approval = asked(client, bank)
    assert asked(store.client(), bank) == approval  # asking again, after a restart, is asking once
    assert (bank.paid, client.effects()) == ([], [])
    client.decide(approval, "approve", by="ann")
    for _ in range(2):
        with store.client().run("s") as run:
            assert pay(run, bank) == "500 to bob"
    assert bank.paid == [("bob", 500)]
    [effect] = client.effects()
    assert effect.approval_id == approval
    assert client.approval(approval).used_by == effect.effect_id


def test_a_rejection_ends_it(client: SyncClient, bank: Bank):
    client.decide(asked(client, bank), "reject", by="ann", note="not him")
    with pytest.raises(ApprovalRejectedError, match="not him"), client.run("s") as run:
        pay(run, bank)
    assert bank.paid == []


def test_other_arguments_are_what_is_carried_out_and_found_again(store: Store, bank: Bank):
    client = store.client()
    approval = asked(client, bank)
    client.decide(approval, "modify", by="ann", arguments={"to": "bob", "amount": 450})
    for _ in range(2):
        with store.client().run("s") as run:
            assert pay(run, bank) == "450 to bob"
    assert bank.paid == [("bob", 450)]
    done, asked_for = sorted(client.effects(), key=lambda effect: effect.state)
    assert (done.arguments, asked_for.state) == ({"to": "bob", "amount": 450}, "modified")
    assert asked_for.target_id == done.effect_id


def test_a_crash_in_a_modified_call_is_in_doubt_and_nobody_is_asked_again(store: Store, bank: Bank):
    client = store.client()
    client.decide(asked(client, bank), "modify", by="ann", arguments={"to": "bob", "amount": 450})
    bank.dies = True
    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        pay(run, bank)
    bank.dies = False
    with pytest.raises(EffectUnknownError), store.client().run("s") as run:
        pay(run, bank)
    assert client.approvals("s") == []
    assert bank.paid == [("bob", 450)]


@pytest.mark.parametrize("arguments", [{"to": "bob", "amonut": 450}, {"amount": 450}, {}])
def test_arguments_that_the_tool_does_not_take_are_not_tried_and_leave_nothing_in_doubt(
    client: SyncClient, bank: Bank, arguments: dict[str, object]
):
    first = asked(client, bank)
    client.decide(first, "modify", by="ann", arguments=arguments)
    with pytest.raises(ApprovalError, match=r"It takes .*asks again") as refused, client.run("s") as run:
        pay(run, bank)
    assert refused.value.approval_id == first
    assert (client.effects(), client.approval(first).status) == ([], "void")
    client.decide(asked(client, bank), "modify", by="ann", arguments={"to": "bob", "amount": 450})
    with client.run("s") as run:
        assert pay(run, bank) == "450 to bob"
    assert bank.paid == [("bob", 450)]


def test_a_tool_that_takes_its_arguments_by_place_gets_the_modified_ones_so(client: SyncClient):
    told: list[tuple[object, ...]] = []

    def tell(to: str, /, *lines: str, urgent: bool = False) -> int:
        told.append((to, *lines, urgent))
        return len(told)

    def life(run: SyncRun) -> object:
        return run.effect("tell", tell, "bob", "one", "two", approve="ann")

    with pytest.raises(ApprovalPendingError), client.run("s") as run:
        life(run)
    [waiting] = client.approvals("s")
    client.decide(waiting.approval_id, "modify", by="ann", arguments={**waiting.call.arguments, "lines[1]": "2"})
    for _ in range(2):
        with client.run("s") as run:
            assert life(run) == 1
    assert told == [("bob", "one", "2", False)]


def test_an_approval_does_not_outlive_its_time(client: SyncClient, bank: Bank, clock: Clock):
    clock.rules(client)
    client.decide(asked(client, bank), "approve", by="ann")
    clock.forward(25 * 3600)
    asked(client, bank)  # for another one
    assert bank.paid == []


def test_how_long_an_approval_counts_is_said_by_the_run(client: SyncClient, bank: Bank, clock: Clock):
    clock.rules(client)
    for seconds in (60, 3600):
        with pytest.raises(ApprovalPendingError), client.run("s", approval_seconds=seconds) as run:
            pay(run, bank)
        [waiting] = client.approvals("s")
        assert (waiting.expires_at - waiting.requested_at).total_seconds() == seconds
        clock.forward(seconds - 1)
        client.decide(waiting.approval_id, "approve", by="ann")
        clock.forward(2)
    with pytest.raises(UsageError, match="approval_seconds"):
        client.run("t", approval_seconds=0)
    asked(client, bank)  # for a third one
    assert bank.paid == []


def test_an_approval_is_for_the_exact_call(client: SyncClient, bank: Bank):
    client.decide(asked(client, bank), "approve", by="ann")
    other = asked(client, bank, 501)
    assert bank.paid == []
    client.decide(other, "approve", by="ann")
    with client.run("s") as run:
        assert pay(run, bank, 501) == "501 to bob"


def test_a_used_one_is_no_right_to_do_it_again(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        before = run.save("before")
    client.decide(asked(client, bank), "approve", by="ann")
    with client.run("s") as run:
        pay(run, bank)
    client.rollback("s", before)
    with pytest.raises(EffectBlockedError), client.run("s") as run:
        pay(run, bank)
    with pytest.raises(ApprovalPendingError), client.run("s") as run:
        pay(run, bank, on_repeat="again")
    assert bank.paid == [("bob", 500)]
    [waiting] = client.approvals("s")
    client.decide(waiting.approval_id, "approve", by="ann")
    with client.run("s") as run:
        assert pay(run, bank, on_repeat="again") == "500 to bob"
    assert len(bank.paid) == 2


def test_a_fork_has_to_ask_for_itself(client: SyncClient, bank: Bank):
    client.save("agent", session_id="s")
    client.decide(asked(client, bank), "approve", by="ann")
    client.fork(client.latest(session_id="s").checkpoint_id, "t")
    with pytest.raises(ApprovalPendingError), client.run("t") as run:
        pay(run, bank)
    assert bank.paid == []


def test_a_rollback_voids_what_was_asked_for_and_says_so(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        before = run.save("before")
        run.step("more", lambda: 1)
    approval = asked(client, bank)
    client.decide(approval, "approve", by="ann")
    report = client.rollback("s", before)
    assert [one.approval_id for one in report.approvals_voided] == [approval]
    with pytest.raises(ApprovalPendingError), client.run("s") as run:
        pay(run, bank)
    assert bank.paid == []


def test_a_suspect_is_shown_to_who_decides(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        before = run.save("before")
        run.effect("pay", bank.pay, "bob", 500)
    client.rollback("s", before)
    with pytest.raises(ApprovalPendingError), client.run("s") as run:
        pay(run, bank, 501)
    [waiting] = client.approvals("s")
    assert "may have been carried out already" in waiting.summary


@pytest.mark.parametrize("wrong", [3, "finance", StakesPolicy])
def test_what_is_no_policy_is_refused_before_anything_is_done(quick: SyncClient, wrong: object):
    with pytest.raises(UsageError, match="gate"):
        quick.run("s", policy=wrong)


def test_an_effect_is_written_down_as_started_when_it_was_not_when_it_was_asked_for(quick: SyncClient, bank: Bank):
    def decided() -> None:
        deadline = time.monotonic() + 60
        while not (waiting := quick.approvals("s")):
            assert time.monotonic() < deadline
        quick.decide(waiting[0].approval_id, "approve", by="ann")

    with ThreadPoolExecutor(1) as others, quick.run("s", approval_wait=None) as run:
        deciding = others.submit(decided)
        pay(run, bank)
        deciding.result()
    [approval], [effect] = quick.approvals("s", pending=False), quick.effects("s")
    assert effect.history[0].what == "started"
    assert effect.history[0].at >= approval.decision.at


def test_a_policy_decides_which_calls_ask(client: SyncClient, bank: Bank):
    policy = StakesPolicy({"pay": "high", "note": "low"}, approvers="finance")
    with pytest.raises(ApprovalPendingError), client.run("s", policy=policy) as run:
        assert run.effect("note", lambda text: text, "hello", kind="reversible") == "hello"
        assert run.effect("look", lambda: 1, kind="read") == 1
        run.effect("pay", bank.pay, "bob", 500)
    [waiting] = client.approvals("s")
    assert (waiting.call.tool, waiting.approvers) == ("pay", "finance")


def test_an_approval_is_void_once_the_tool_takes_something_else(client: SyncClient):
    paid: list[object] = []

    def of_version_1(to: str, amount: int) -> None:
        paid.append((to, amount))

    def same_again(to: str, amount: int) -> None:
        paid.append((to, amount))

    def of_version_2(to: str, amount: float) -> None:  # in another unit now
        paid.append((to, amount))

    def ask(tool: Callable[..., None]) -> None:
        with client.run("s") as run:
            run.effect("pay", tool, "bob", 500, approve="finance", identity=("to", "amount"))

    with pytest.raises(ApprovalPendingError):
        ask(of_version_1)
    [first] = client.approvals("s")
    with pytest.raises(ApprovalPendingError):
        ask(same_again)
    assert client.approvals("s") == [first]
    client.decide(first.approval_id, "approve", by="ann")
    with pytest.raises(ApprovalPendingError):
        ask(of_version_2)
    assert client.approval(first.approval_id).status == "void"
    [second] = client.approvals("s")
    assert (second.approval_id != first.approval_id, paid) == (True, [])
    client.decide(second.approval_id, "approve", by="ann")
    ask(of_version_2)
    assert paid == [("bob", 500)]
