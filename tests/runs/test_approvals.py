"""Approvals: bound to the exact call, used once, expiring, never inherited; decided by exactly one, waited for across
processes and restarts."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal

import pytest
from stores import SOME_ID, python, python_process

from holdfast import (
    ApprovalError,
    ApprovalPendingError,
    ApprovalRejectedError,
    ApprovalStatus,
    CheckpointNotFoundError,
    ConflictError,
    CorruptError,
    UsageError,
)
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit, CommitConflict, RowWrite
from holdfast.format.rows import approval as entries
from holdfast.operations import approval as operations

PAY = {"to": "bob", "amount": Decimal("500.00"), "lines": [{"b": 1, "a": (2, 3)}]}
REORDERED = {"lines": [{"a": (2, 3), "b": 1}], "amount": Decimal("500.00"), "to": "bob"}


def session(client, name="order-42", states=1):
    return [client.save(agent_id="buyer", execution_state={"n": n}, session_id=name) for n in range(states)]


def ask(client, name="order-42", arguments=PAY, **options):
    return client.request_approval(name, "pay", arguments, identity=("to", "amount"), **options)


def use(client, approval, name="order-42", arguments=PAY, by="effect 1"):
    return client.use_approval(approval.approval_id, name, "pay", arguments, identity=("to", "amount"), by=by)


# -- asking and deciding -----------------------------------------------------------------------------------------------


def test_a_request_waits_with_all_that_a_person_has_to_see(client):
    [here] = session(client)
    asked = ask(client, approvers="finance", summary="pay bob for May", seconds=60)
    assert client.approvals() == client.approvals("order-42") == [asked] == [client.approval(asked.approval_id)]
    assert asked.status is ApprovalStatus.PENDING
    assert asked.call.arguments == PAY
    assert type(asked.call.arguments["lines"][0]["a"]) is tuple
    assert asked.call.identity == {"to": "bob", "amount": Decimal("500.00")}
    assert (asked.session_id, asked.checkpoint_id) == ("order-42", here)
    assert (asked.approvers, asked.summary) == ("finance", "pay bob for May")
    assert asked.expires_at - asked.requested_at == timedelta(seconds=60)
    assert client.approvals("another session") == []
    assert "pay" in repr(asked)
    assert "pending" in repr(asked)


def test_asking_again_finds_the_same_approval_waiting_or_decided(store):
    client = store.client()
    session(client)
    asked = ask(client)
    assert ask(client, arguments=REORDERED) == asked  # the order of keys makes no other call
    assert ask(store.client()) == asked  # as another process would
    client.decide(asked.approval_id, "approve", by="ann")
    found = ask(store.client())
    assert (found.approval_id, found.status) == (asked.approval_id, ApprovalStatus.APPROVED)


@pytest.mark.parametrize(
    "other",
    [
        PAY | {"amount": Decimal("500.01")},
        PAY | {"amount": 500.0},
        PAY | {"note": "x"},
        {"to": "bob", "amount": Decimal("500.00")},
    ],
    ids=["value", "type", "more", "less"],
)
def test_another_call_needs_another_approval(client, other):
    session(client)
    asked = ask(client)
    client.decide(asked.approval_id, "approve", by="ann")
    with pytest.raises(ApprovalError, match="another call"):
        use(client, asked, arguments=other)
    assert ask(client, arguments=other).approval_id != asked.approval_id
    assert client.approval(asked.approval_id).status is ApprovalStatus.APPROVED  # nothing was used up


def test_the_tool_is_part_of_the_call(client):
    session(client)
    asked = ask(client)
    client.decide(asked.approval_id, "approve", by="ann")
    with pytest.raises(ApprovalError, match="another call"):
        client.use_approval(asked.approval_id, "order-42", "refund", PAY, identity=("to", "amount"), by="e")
    with pytest.raises(ApprovalError, match="another call"):
        client.use_approval(asked.approval_id, "order-42", "pay", PAY, identity=("to",), by="e")


def test_a_rejection_says_who_and_why(client):
    session(client)
    asked = ask(client)
    client.decide(asked.approval_id, "reject", by="ann", note="bob has left")
    with pytest.raises(ApprovalRejectedError, match="bob has left") as caught:
        use(client, asked)
    assert (caught.value.approval_id, caught.value.by, caught.value.note) == (asked.approval_id, "ann", "bob has left")
    assert client.approvals() == []
    assert [one.status for one in client.approvals(pending=False)] == [ApprovalStatus.REJECTED]


def test_a_rejection_is_found_again_until_the_session_has_moved(store):
    client = store.client()
    session(client)
    client.decide(ask(client).approval_id, "reject", by="ann")
    assert ask(store.client()).status is ApprovalStatus.REJECTED  # a restart does not ask a second time
    session(client)
    assert ask(client).status is ApprovalStatus.PENDING  # this is another occasion


def test_a_rejection_of_a_named_occasion_stays(client):
    session(client)
    client.decide(ask(client, key="call 1").approval_id, "reject", by="ann")
    session(client)
    assert ask(client, key="call 1").status is ApprovalStatus.REJECTED
    assert ask(client, key="call 2").status is ApprovalStatus.PENDING


def test_a_rejection_does_not_outlive_a_rollback(client):
    first, _ = session(client, states=2)
    client.decide(ask(client, key="call 1").approval_id, "reject", by="ann")
    client.rollback("order-42", to=first)
    assert ask(client, key="call 1").status is ApprovalStatus.PENDING


def test_modified_arguments_are_the_ones_that_may_run(client):
    session(client)
    asked = ask(client)
    less = PAY | {"amount": Decimal("50.00")}
    decided = client.decide(asked.approval_id, "modify", by="ann", note="in parts", arguments=less)
    assert decided.status is ApprovalStatus.MODIFIED
    assert decided.arguments == less
    assert decided.call.arguments == PAY  # what was asked for stays to be seen
    with pytest.raises(ApprovalError, match="another call"):
        use(client, asked)
    assert use(client, asked, arguments=less).status is ApprovalStatus.USED


@pytest.mark.parametrize(
    ("answer", "arguments"),
    [
        ("approve", {"amount": 1}),
        ("reject", {}),
        ("modify", None),
        ("maybe", None),
        ("modify", [1]),
        ("modify", {1: 2}),
    ],
)
def test_an_answer_that_can_not_be_right_is_refused(quick, answer, arguments):
    session(quick)
    asked = ask(quick)
    with pytest.raises(UsageError):
        quick.decide(asked.approval_id, answer, by="ann", arguments=arguments)
    assert quick.approval(asked.approval_id) == asked


def test_requests_that_can_not_be_right_are_refused(quick):
    session(quick)
    for wrong in (
        {"identity": ("nobody",)},
        {"kind": "mostly harmless"},
        {"gate": "go"},
        {"seconds": 0},
        {"arguments": [1]},
        {"arguments": {1: 2}},
        {"arguments": {"to": object()}},
        {"tool": 7},
    ):
        with pytest.raises(UsageError):
            quick.request_approval(**{"session_id": "order-42", "tool": "pay", "arguments": PAY, **wrong})
    with pytest.raises(CheckpointNotFoundError, match="no session"):
        ask(quick, "nowhere")
    with pytest.raises(CheckpointNotFoundError, match="no approval"):
        quick.approval(SOME_ID)
    with pytest.raises(CheckpointNotFoundError, match="no approval"):
        quick.decide(SOME_ID, "approve", by="ann")
    assert quick.approvals(pending=False) == []


def test_repeating_a_decision_is_a_no_op_and_another_one_a_conflict(client):
    session(client)
    asked = ask(client)
    made = client.decide(asked.approval_id, "approve", by="ann", note="fine")
    assert client.decide(asked.approval_id, "approve", by="ann", note="fine") == made
    with pytest.raises(ConflictError, match="approved by 'ann'"):
        client.decide(asked.approval_id, "reject", by="ann")
    with pytest.raises(ConflictError, match="approved by 'ann'"):
        client.decide(asked.approval_id, "approve", by="bea", note="fine")
    use(client, asked)
    assert client.decide(asked.approval_id, "approve", by="ann", note="fine").status is ApprovalStatus.USED


def test_of_many_that_decide_at_once_one_does(store):
    client = store.client()
    session(client)
    asked = ask(client)
    clients = [store.client() for _ in range(6)]
    start = threading.Barrier(len(clients))

    def decide(number):
        start.wait()
        try:
            clients[number].decide(asked.approval_id, ("approve", "reject")[number % 2], by=f"person {number}")
        except ConflictError:
            return None
        return f"person {number}"

    with ThreadPoolExecutor(len(clients)) as pool:
        [winner] = [name for name in pool.map(decide, range(len(clients))) if name]
    decided = client.approval(asked.approval_id)
    assert decided.decision is not None
    assert decided.decision.by == winner


# -- used once ---------------------------------------------------------------------------------------------------------


def test_an_approval_is_used_once(client):
    session(client)
    asked = ask(client)
    client.decide(asked.approval_id, "approve", by="ann")
    used = use(client, asked)
    assert (used.status, used.used_by) == (ApprovalStatus.USED, "effect 1")
    with pytest.raises(ApprovalError, match="counts once"):
        use(client, asked, by="effect 2")
    again = ask(client)  # the same call a second time is another decision
    assert again.approval_id != asked.approval_id
    assert again.is_pending


def test_of_many_that_use_it_at_once_one_does(store):
    client = store.client()
    session(client)
    asked = ask(client)
    client.decide(asked.approval_id, "approve", by="ann")
    clients = [store.client() for _ in range(6)]
    start = threading.Barrier(len(clients))

    def take(number):
        start.wait()
        try:
            use(clients[number], asked, by=f"effect {number}")
        except ApprovalError:
            return None
        return f"effect {number}"

    with ThreadPoolExecutor(len(clients)) as pool:
        [winner] = [name for name in pool.map(take, range(len(clients))) if name]
    assert client.approval(asked.approval_id).used_by == winner


def test_it_is_used_up_by_the_commit_that_it_is_part_of_or_not_at_all(client):
    """What `run.effect` does: the intent's row and the approval's are one commit."""
    session(client)
    asked = ask(client)
    client.decide(asked.approval_id, "approve", by="ann")
    ctx = client._ctx
    held = run_inline(operations.find(ctx, entries.ids.from_text(asked.approval_id)))
    digest = entries.call_digest(ctx.codec, "pay", asked.call.identity, asked.call.arguments)
    writes = [
        run_inline(operations.use(ctx, held, session_id="order-42", digest=digest, by=f"effect {number}"))
        for number in (1, 2)
    ]
    run_inline(ctx.backend.commit(Commit(tree=held.tree, rows=[writes[0]])))
    with pytest.raises(CommitConflict):
        run_inline(ctx.backend.commit(Commit(tree=held.tree, rows=[writes[1]])))
    assert client.approval(asked.approval_id).used_by == "effect 1"


def test_one_that_nobody_granted_can_not_be_used(client):
    session(client)
    asked = ask(client)
    with pytest.raises(ApprovalPendingError, match="holdfast approve") as caught:
        use(client, asked)
    assert caught.value.exit_code == 6
    assert caught.value.approval_id == asked.approval_id


# -- time --------------------------------------------------------------------------------------------------------------


def test_one_that_nobody_decided_in_time_has_expired(client, clock):
    clock.rules(client)
    session(client)
    asked = ask(client, seconds=60)
    clock.forward(60)
    assert client.approvals() == []
    assert client.approval(asked.approval_id).status is ApprovalStatus.EXPIRED
    with pytest.raises(ApprovalError, match="expired"):
        client.decide(asked.approval_id, "approve", by="ann")
    assert client.wait_for_approval(asked.approval_id).status is ApprovalStatus.EXPIRED
    assert ask(client, seconds=60).approval_id != asked.approval_id  # one can ask again


def test_one_that_was_not_used_in_time_has_expired(client, clock):
    clock.rules(client)
    session(client)
    asked = ask(client, seconds=60)
    clock.forward(59)
    client.decide(asked.approval_id, "approve", by="ann")
    clock.forward(1)
    with pytest.raises(ApprovalError, match="expired"):
        use(client, asked)
    again = ask(client, seconds=60)
    assert again.is_pending
    assert again.approval_id != asked.approval_id


# -- forks and rollbacks -----------------------------------------------------------------------------------------------


def test_a_fork_inherits_no_approval(client):
    [here] = session(client)
    asked = ask(client)
    client.decide(asked.approval_id, "approve", by="ann")
    client.fork(here, "fork")
    with pytest.raises(ApprovalError, match="forks"):
        use(client, asked, "fork")
    of_fork = ask(client, "fork")
    assert of_fork.is_pending
    assert of_fork.approval_id != asked.approval_id
    assert client.approvals("fork") == [of_fork]
    assert use(client, asked).status is ApprovalStatus.USED  # it stays that of its own session


@pytest.mark.parametrize("decided", [True, False], ids=["granted", "waiting"])
def test_a_rollback_to_before_it_was_asked_for_voids_it(client, decided):
    first, last = session(client, states=2)
    asked = ask(client)
    if decided:
        client.decide(asked.approval_id, "approve", by="ann")
    report = client.rollback("order-42", to=first)
    assert [one.approval_id for one in report.approvals_voided] == [asked.approval_id]
    assert client.approvals() == []
    client.rollback("order-42", to=last)  # which does not bring it back
    with pytest.raises(ApprovalError, match="void"):
        use(client, asked)
    if not decided:
        with pytest.raises(ApprovalError, match="void"):
            client.decide(asked.approval_id, "approve", by="ann")
    again = ask(client)
    assert again.is_pending
    assert again.approval_id != asked.approval_id


def test_a_rollback_to_where_it_was_asked_for_keeps_it(client):
    [here] = session(client)
    asked = ask(client)
    session(client, states=3)
    report = client.rollback("order-42", to=here)
    assert list(report.approvals_voided) == []
    client.decide(asked.approval_id, "approve", by="ann")
    assert use(client, asked).status is ApprovalStatus.USED


def test_what_was_approved_at_a_place_that_a_session_left_by_other_means_can_not_be_used(client):
    """A claim moves the head back to the handoff: that is no rollback, and voids nothing by itself."""
    [here] = session(client)
    handed = client.handoff(here, "payer")
    client.save(agent_id="buyer", execution_state={"n": 9}, session_id="order-42")
    asked = ask(client)
    client.decide(asked.approval_id, "approve", by="ann")
    with client.claim(handed, "payer"), pytest.raises(ApprovalError, match="has left"):
        use(client, asked)


def test_another_call_in_its_place_voids_what_waits(client):
    session(client)
    asked = ask(client, key="step 1")
    other = ask(client, arguments=PAY | {"to": "eve"}, key="step 1")
    assert client.approvals() == [other]
    assert client.approval(asked.approval_id).status is ApprovalStatus.VOID


# -- waiting -----------------------------------------------------------------------------------------------------------

DECIDER = """
    import sys
    from holdfast import SyncClient
    with SyncClient.open(sys.argv[1]) as client:
        client.decide(sys.argv[2], "modify", by="ann", arguments={"to": "bob", "amount": 1})
"""

WAITER = """
    import sys
    from holdfast import SyncClient
    with SyncClient.open(sys.argv[1]) as client:
        asked = client.request_approval("order-42", "pay", {"to": "bob", "amount": 500})
        print(asked.approval_id, flush=True)
        decided = client.wait_for_approval(asked.approval_id)
        used = client.use_approval(decided.approval_id, "order-42", "pay", decided.arguments, by=sys.argv[2])
        print(decided.status, dict(decided.arguments), used.used_by, flush=True)
"""


def test_a_decision_of_another_process_ends_the_waiting(shared_store):
    client = shared_store.client()
    session(client)
    waiting = python_process(WAITER, shared_store.url, "first")
    approval_id = waiting.stdout.readline().strip()
    python(DECIDER, shared_store.url, approval_id)
    out, err = waiting.communicate(timeout=240)
    assert (waiting.returncode, err) == (0, "")
    assert out == "modified {'to': 'bob', 'amount': 1} first\n"


def test_a_restart_while_waiting_waits_for_the_same_approval(shared_store):
    client = shared_store.client()
    session(client)
    killed = python_process(WAITER, shared_store.url, "first")
    approval_id = killed.stdout.readline().strip()
    killed.kill()
    killed.communicate(timeout=240)
    restarted = python_process(WAITER, shared_store.url, "second")
    assert restarted.stdout.readline().strip() == approval_id
    client.decide(approval_id, "approve", by="ann")
    out, err = restarted.communicate(timeout=240)
    assert (restarted.returncode, err) == (0, "")
    assert out == "approved {'to': 'bob', 'amount': 500} second\n"
    assert len(client.approvals(pending=False)) == 1


def test_a_thread_waits_for_another_ones_decision(client):
    session(client)
    asked = ask(client)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait_for_approval, asked.approval_id)
        client.decide(asked.approval_id, "reject", by="ann")
        assert waiting.result(timeout=240).status is ApprovalStatus.REJECTED


def test_waiting_for_so_many_seconds_leaves_it_waiting(client):
    session(client)
    asked = ask(client)
    with pytest.raises(ApprovalPendingError, match="waits for approval"):
        client.wait_for_approval(asked.approval_id, seconds=0)
    assert client.approvals() == [asked]


# -- keeping -----------------------------------------------------------------------------------------------------------


def test_collection_keeps_approvals_as_long_as_their_tree(client):
    [here] = session(client)
    session(client, "other")
    asked = ask(client)
    stays = ask(client, "other")
    client.gc()
    assert client.approvals() == [asked, stays]
    client.expire(here)
    client.gc()
    assert client.approvals(pending=False) == [stays]


def test_a_damaged_approval_is_found_and_hides_no_other(client, caplog):
    session(client)
    damaged, whole = ask(client), ask(client, arguments={"to": "eve", "amount": 1})
    backend = client._ctx.backend
    id_ = entries.ids.from_text(damaged.approval_id)
    [(key, row)] = run_inline(backend.scan(entries.APPROVAL, prefix=entries.WAITING + id_))
    flipped = bytes([row.value[0] ^ 1]) + row.value[1:]
    run_inline(backend.commit(Commit(tree=key.tree, rows=[RowWrite(key, flipped)])))
    with pytest.raises(CorruptError):
        client.approval(damaged.approval_id)
    with pytest.raises(CorruptError):
        client.decide(damaged.approval_id, "approve", by="ann")
    assert client.approvals() == [whole]
    assert damaged.approval_id in caplog.text
    assert [problem.message for problem in client.verify().problems] != []
