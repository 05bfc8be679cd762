"""The status of a run: one word from one place, and the end of a run is always saved."""

import subprocess
import sys
import textwrap

import pytest

from holdfast import (
    ApprovalPendingError,
    EffectUnknownError,
    RunState,
    SyncClient,
    UsageError,
)

pytestmark = pytest.mark.every_store


def status_of(client, session_id):
    """Return the status of a run, which list and detail must agree on."""
    found = client.run_status(session_id)
    [listed] = [one for one in client.runs() if one.session_id == session_id]
    assert listed == found
    assert found in client.runs(status=found.status)
    return found


def fail(message):
    raise ValueError(message)


def test_a_run_is_running_then_completed_with_its_result(client):
    with client.run("order", agent_id="a", holder="worker 7") as run:
        running = status_of(client, "order")
        assert (running.status, running.holder, running.head) == (RunState.RUNNING, "worker 7", None)
        run.step("one", lambda: 1)
        run.result = {"paid": 500, "parts": (1, 2)}
    done = status_of(client, "order")
    assert (done.status, done.result) == ("completed", {"paid": 500, "parts": (1, 2)})
    assert done.holder is None
    assert done.is_over
    assert done.since is not None
    with client.run("order", agent_id="a"):
        again = status_of(client, "order")
        assert (again.status, again.result) == ("running", None)


def test_a_result_that_cannot_be_kept_is_refused_where_it_is_given(client):
    from holdfast import UnsupportedValueError

    with client.run("order") as run:
        with pytest.raises(UnsupportedValueError, match="the result of the run"):
            run.result = object()
        run.result = "fine"
        assert run.result == "fine"
    assert status_of(client, "order").result == "fine"


def test_a_failed_run_names_exception_step_and_traceback_and_counts_attempts(client):
    for attempt in (1, 2):
        with pytest.raises(ValueError), client.run("order", agent_id="a") as run:
            run.step("plan", lambda: 1)
            run.step("pay", fail, "no account\ud800")
        failed = status_of(client, "order")
        assert failed.status == "failed"
        assert failed.attempts == attempt
        assert failed.failure.error_type == "builtins.ValueError"
        assert failed.failure.message == "no account\ud800"
        assert failed.failure.step == "pay"
        assert "raise ValueError(message)" in failed.failure.traceback
    with client.run("order", agent_id="a") as run:
        run.step("plan", lambda: 1)
    done = status_of(client, "order")
    assert (done.status, done.failure, done.attempts) == ("completed", None, 0)


def test_a_failure_outside_of_a_step_has_no_step(client):
    with pytest.raises(ValueError), client.run("order"):
        fail("here")
    assert status_of(client, "order").failure.step is None


def test_the_end_of_a_run_takes_no_further_commit(client):
    def commits():
        return client._ctx.backend.committed

    with client.run("order") as run:
        run.step("one", lambda: 1)
        before = commits()
    assert commits() - before == 1  # the release of the lease
    assert status_of(client, "order").status == "completed"


def test_a_run_that_waits_for_approval_says_for_which_and_is_interrupted_once_it_is_decided(client):
    with pytest.raises(ApprovalPendingError), client.run("order", agent_id="a") as run:
        run.effect("pay", lambda amount: amount, amount=5, approve="finance", key="k")
    waiting = status_of(client, "order")
    [asked] = client.approvals("order")
    assert (waiting.status, waiting.approvals) == ("waiting", 1)
    assert [(one.kind, one.targets) for one in waiting.waits] == [("approval", (asked.approval_id,))]
    client.decide(asked.approval_id, "approve", by="ann")
    ready = status_of(client, "order")
    assert (ready.status, ready.waits) == ("interrupted", ())


def test_a_run_in_doubt_names_the_effect_until_a_person_has_decided(client):
    def pay(amount):
        raise OSError("connection lost")

    with pytest.raises(OSError), client.run("order", agent_id="a") as run:
        run.effect("pay", pay, amount=5, key="k")
    assert status_of(client, "order").status == "failed"
    with pytest.raises(EffectUnknownError), client.run("order", agent_id="a") as run:
        run.effect("pay", pay, amount=5, key="k")
    doubtful = status_of(client, "order")
    [effect] = client.effects("order", in_doubt=True)
    assert (doubtful.status, doubtful.in_doubt) == ("in doubt", (effect.effect_id,))
    client.resolve_effect(effect.effect_id, "done", result="receipt", by="ann")
    assert status_of(client, "order").status == "interrupted"
    with client.run("order", agent_id="a") as run:
        assert run.effect("pay", pay, amount=5, key="k") == "receipt"
    assert status_of(client, "order").status == "completed"


def test_a_run_ended_from_outside_is_interrupted(client):
    with pytest.raises(KeyboardInterrupt), client.run("order") as run:
        run.step("one", lambda: 1)
        raise KeyboardInterrupt
    found = status_of(client, "order")
    assert (found.status, found.attempts) == ("interrupted", 0)
    assert found.failure.error_type == "builtins.KeyboardInterrupt"


def test_a_cancelled_run_is_cancelled_whatever_it_was(client):
    for name in ("done", "failed"):
        try:
            with client.run(name) as run:
                run.step("one", lambda: 1)
                if name == "failed":
                    fail("x")
        except ValueError:
            pass
        client.cancel(name, by="ann", reason="no longer wanted")
        found = status_of(client, name)
        assert (found.status, found.holder) == ("cancelled", "ann")


def test_a_session_leased_by_no_run_is_stopped(client):
    client.save("a", session_id="s", execution_state={})
    assert client.run_status("s") is None
    assert client.run_status("none") is None
    with client.lease("s"):
        assert status_of(client, "s").status == "running"
    assert status_of(client, "s").status == "stopped"


def test_a_lease_taken_by_hand_after_the_end_changes_no_status(client):
    with client.run("order") as run:
        run.step("one", lambda: 1)
    with client.lease("order"):
        pass
    assert status_of(client, "order").status == "completed"


def test_a_run_whose_process_died_is_interrupted_at_once(tmp_path):
    program = textwrap.dedent("""
        import os, sys
        from holdfast import SyncClient
        with SyncClient.sqlite(sys.argv[1]) as client, client.run("order", agent_id="a") as run:
            run.step("one", lambda: 1)
            os._exit(9)
    """)
    path = tmp_path / "store.db"
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    with SyncClient.sqlite(path) as client:
        found = status_of(client, "order")
        assert (found.status, found.holder, found.saves) == ("interrupted", None, 1)
        with client.run("order", agent_id="a"):
            assert status_of(client, "order").status == "running"
        assert status_of(client, "order").status == "completed"


@pytest.mark.slow
def test_a_run_whose_lease_ran_out_is_interrupted(client):
    run = client.run("order", seconds=3)
    run.step("one", lambda: 1)
    import time

    time.sleep(3.1)
    assert status_of(client, "order").status == "interrupted"


def test_a_run_under_a_claim_ends_with_the_claim(client):
    cid = client.save("writer", session_id="s", execution_state={"draft": 1})
    offer = client.handoff(cid, "reviewer")
    with client.claim(offer, "reviewer") as claim:
        with client.run("s", "reviewer", lease=claim.lease) as run:
            run.step("read", lambda: 1)
            run.result = "read"
        assert status_of(client, "s").status == "running"
    assert (status_of(client, "s").status, status_of(client, "s").result) == ("completed", "read")


def test_progress_is_shown_while_it_runs_and_after_it(client):
    stands_at = client._ctx.now_us()
    client._ctx.now_us = client._client._ctx.now_us = lambda: stands_at
    with client.run("order") as run:
        assert status_of(client, "order").progress is None
        run.progress(1, 10, "files")
        run.progress(2, 10, "files")  # within the same second: not written yet
        shown = status_of(client, "order").progress
        assert (shown.done, shown.total, shown.note) == (1, 10, "files")
    shown = status_of(client, "order").progress
    assert (shown.done, shown.total) == (2, 10)
    with client.run("order"):
        assert status_of(client, "order").progress is None  # that was of an earlier life


@pytest.mark.parametrize("wrong", [-1, float("nan"), "1", True])
def test_progress_takes_numbers_only(client, wrong):
    with client.run("order") as run, pytest.raises(UsageError, match="done"):
        run.progress(wrong)


def test_an_unknown_status_is_refused(client):
    with pytest.raises(UsageError, match="'in doubt'"):
        client.runs(status="broken")


def test_lists_by_status_hold_what_they_say(client):
    with client.run("done"):
        pass
    with pytest.raises(ValueError), client.run("failed"):
        fail("x")
    with client.run("now"):
        assert [one.session_id for one in client.runs(status=["failed", "running"])] == ["now", "failed"]
        assert [one.session_id for one in client.runs(alive=True)] == ["now"]
        assert [str(one.status) for one in client.runs()] == ["running", "failed", "completed"]
