"""cancel: no commit of any worker after it, down the whole tree of delegations."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from stores import Store

from holdfast import (
    CheckpointNotFoundError,
    LeaseLostError,
    RunCancelledError,
    UsageError,
)
from holdfast.backends.port import Commit
from holdfast.model.cancellation import CancelReport
from holdfast.runs import receive

pytestmark = pytest.mark.every_store


def statuses(report: CancelReport) -> dict[str, str]:
    """The status of each session, by the agent that had it."""
    return {one.agent_id: one.status for one in report.sessions}


def test_a_worker_can_not_commit_after_its_session_was_cancelled(store):
    worker, person = store.client(), store.client()
    with pytest.raises(RunCancelledError), worker.run("s", "a") as run:
        run.step("one", lambda: 1)
        person.cancel("s", by="ana", reason="wrong order")
        run.step("two", lambda: 2)
    assert [one.step_name for one in person.timeline("s")] == ["one"]


@pytest.mark.parametrize("act", ["step", "effect", "save", "delegate", "join", "tasks"])
def test_whatever_the_worker_does_next_is_refused(quick, act):
    with quick.run("s", "a") as run:
        asked = run.delegate("b", [1])
    held = quick.run("s", "a")
    quick.cancel("s", by="ana", reason="enough")
    acts = {
        "step": lambda: held.step("x", lambda: 1),
        "effect": lambda: held.effect("x", lambda: 1),
        "save": held.save,
        "delegate": lambda: held.delegate("c", [1, 2]),
        "join": lambda: held.join(asked),
        "tasks": lambda: list(held.tasks("t", [1])),
    }
    with pytest.raises(RunCancelledError) as raised:
        acts[act]()
    assert (raised.value.by, raised.value.reason, raised.value.session_id) == ("ana", "enough", "s")
    assert isinstance(raised.value, LeaseLostError)
    assert quick.inbox("c") == []


def test_a_cancelled_session_says_who_and_why_and_how_to_go_on(client):
    client.save("a", session_id="s", execution_state={"n": 1})
    client.cancel("s", by="ana", reason="wrong order")
    for act in (
        lambda: client.run("s", "a"),
        lambda: client.lease("s", wait=60),
        lambda: client.save("a", session_id="s", execution_state={}),
        lambda: client.handoff(client.latest("s").checkpoint_id, "b"),
    ):
        with pytest.raises(RunCancelledError, match=r"cancelled by 'ana' on .*: wrong order\. .*`fork`"):
            act()
    assert client.latest("s").execution_state == {"n": 1}
    fork = client.fork("s")
    with client.run(fork.session_id, "a") as run:
        assert run.state == {"n": 1}
    assert [one.status for one in client.runs() if one.session_id == "s"] == ["cancelled"]
    assert client.runs(alive=True) == []


def test_an_open_handoff_of_a_cancelled_session_leaves_the_inbox(client):
    offered = client.handoff(client.save("a", session_id="s", execution_state={}), "b")
    client.cancel("s", by="ana")
    assert client.inbox("b") == []
    assert [(str(one.status), one.by) for one in client.inbox("b", include_claimed=True)] == [("cancelled", "ana")]
    with pytest.raises(RunCancelledError):
        client.claim(offered, "b", wait=60)


def test_open_approvals_of_a_cancelled_session_are_void(client):
    client.save("a", session_id="s", execution_state={})
    client.request_approval("s", "pay", {"amount": 1})
    assert client.cancel("s", by="ana").sessions[0].approvals_voided == 1
    assert client.approvals() == []


def test_a_session_that_is_not_there_can_not_be_cancelled(quick):
    with pytest.raises(CheckpointNotFoundError):
        quick.cancel("s")
    quick.save("a", session_id="s", execution_state={})
    with pytest.raises(UsageError):
        quick.cancel("s", by="two\nlines")


class ThreeLevels:
    """A boss, a lead and two workers, all of them at work; a third item waits unclaimed."""

    def __init__(self, store: Store) -> None:
        self.clients = [store.client() for _ in range(4)]
        boss, lead, one, two = self.clients
        self.boss = boss.run("boss", "boss")
        self.boss.effect("order", lambda: "order 1", kind="reversible", undo=lambda _: None)
        self.boss.delegate("lead", ["plan"])
        self.lead_claim = lead.claim(lead.inbox("lead")[0].handoff_id, "lead")
        self.lead = lead.run(self.lead_claim.session_id, "lead", lease=self.lead_claim.lease)
        self.asked = self.lead.delegate("worker", [1, 2, 3, 4])
        self.claims = [one.claim(self.asked[0].handoff_id, "worker"), two.claim(self.asked[1].handoff_id, "worker")]
        self.runs = [
            client.run(claim.session_id, "worker", lease=claim.lease)
            for client, claim in zip((one, two), self.claims, strict=True)
        ]
        self.runs[0].effect("mail", lambda: "sent")
        with pytest.raises(OSError, match="lost"):
            self.runs[1].effect("pay", self._lose)
        last = two.claim(self.asked[3].handoff_id, "worker")
        last.complete("done before")
        last.release()

    def _lose(self) -> None:
        raise OSError("lost")


def test_a_tree_of_three_levels_is_cancelled_while_all_work(store):
    team = ThreeLevels(store)
    person = store.client()
    planned = person.cancel("boss", by="ana", reason="stop", dry_run=True)
    assert person.team("boss").members[0].status == "running"
    heads = {one.session_id: one.head.checkpoint_id for one in person.sessions()}
    report = person.cancel("boss", by="ana", reason="stop")
    assert [one.depth for one in report.sessions] == [0, 1, 2, 2, 2, 2]
    assert [one.status for one in report.sessions] == [
        "running", "running", "running", "running", "unclaimed", "answered"
    ]  # fmt: skip
    assert [(one.session_id, one.status) for one in planned.sessions] == [
        (one.session_id, one.status) for one in report.sessions
    ]
    assert [one.tool for one in report.effects] == ["order", "mail"]
    assert [one.tool for one in report.undos] == ["order"]
    assert [one.tool for one in report.unknown] == ["pay"]
    assert [one.session_id for one in report.unclaimed] == [team.asked[2].session_id]
    for run in (team.boss, team.lead, *team.runs):
        with pytest.raises(RunCancelledError):
            run.step("more", lambda: 1)
    for claim in team.claims:
        with pytest.raises(RunCancelledError):
            claim.complete("late")
    assert person.inbox("worker") == []
    assert {one.session_id: one.head.checkpoint_id for one in store.client().sessions()} == heads
    assert person.verify().problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["in a turn", "waiting"])
def test_a_receiver_that_is_cancelled_consumes_nothing_more(store, when, monkeypatch):
    monkeypatch.setattr(receive, "LEASE_CHECK_SECONDS", 0.1)
    client, person = store.client(), store.client()
    client.publish("t", 1)
    got = []
    with pytest.raises(RunCancelledError), client.run("s", "a") as run:
        for message in run.receive("t", "g", timeout=60):
            got.append(message.value)
            run.state["seen"] = list(got)
            if when == "in a turn":
                person.cancel("s", by="ana", reason="stop")
            else:
                threading.Timer(0.2, lambda: person.cancel("s", by="ana", reason="stop")).start()
    is_consumed = when == "waiting"
    head = person.latest("s")
    assert (head is not None and head.execution_state.get("seen") == [1]) == is_consumed
    with store.client().run("other", "a") as other:
        again = [one.value for one in other.receive("t", "g", timeout=0 if is_consumed else 1)]
    assert again == ([] if is_consumed else [1])


def test_cancelling_again_changes_nothing(store):
    ThreeLevels(store)
    store.client().cancel("boss", by="ana", reason="stop")
    again, recorder = store.recorded()
    before = len(recorder.commits)
    report = again.cancel("boss", by="bob", reason="me too")
    assert {one.status for one in report.sessions} == {"cancelled", "answered"}
    assert len(recorder.commits) == before
    with pytest.raises(RunCancelledError, match="by 'ana'"):
        again.run("boss", "boss")


def test_a_child_that_was_declared_and_not_made_is_cancelled_before_it_is(store):
    """The boss dies between its row and the child: the child must not come to life later."""
    client, recorder = store.recorded()
    boss = client.run("boss", "boss")

    def stop(commits: Sequence[Commit]) -> None:
        if any(one.record is not None for one in commits):
            raise KeyboardInterrupt

    recorder.before_commit = stop
    with pytest.raises(KeyboardInterrupt):
        boss.delegate("worker", [1])
    recorder.before_commit = None
    report = store.client().cancel("boss", by="ana")
    assert statuses(report) == {None: "running", "worker": "unclaimed"}
    with pytest.raises(RunCancelledError):
        boss.delegate("worker", [1])
    assert client.inbox("worker") == []
    assert client.team("boss").members[1].status == "cancelled"


def test_gc_removes_what_was_cancelled_long_ago(quick, clock):
    clock.rules(quick)
    quick.save("a", session_id="s", execution_state={})
    quick.cancel("s", by="ana")
    quick.expire(quick.latest("s").checkpoint_id)
    quick.gc()
    with pytest.raises(RunCancelledError):
        quick.run("s", "a")
    clock.forward(25 * 3600)
    quick.gc()
    with quick.run("s", "a") as run:
        assert not run.resumed


def test_an_effect_in_doubt_is_resolved_after_the_cancellation(client):
    with pytest.raises(OSError, match="lost"), client.run("s", "a") as run:
        run.effect("pay", _lose)
    client.cancel("s", by="ana")
    [left] = client.effects("s", in_doubt=True)
    assert client.resolve_effect(left.effect_id, "done", result=1, by="ana").state == "done"


def _lose() -> None:
    raise OSError("lost")
