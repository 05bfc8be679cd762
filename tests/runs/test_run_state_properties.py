"""The status of a run as a pure function, compared with its description in words."""

from hypothesis import given
from hypothesis import strategies as some

from holdfast.model.run_status import RunFacts, RunState, derive_state

ENDS = (None, "ready", "taken", "parked", "doubtful", "stopped", "failed", "completed")
facts = some.builds(
    RunFacts,
    is_cancelled=some.booleans(),
    has_lease=some.booleans(),
    is_alive=some.booleans(),
    ended=some.sampled_from(ENDS),
    is_waiting=some.booleans(),
    is_doubtful=some.booleans(),
    is_worked=some.booleans(),
    approvals=some.integers(0, 2),
).map(lambda one: one if one.has_lease else one._replace(is_alive=False, is_cancelled=False))


@given(facts)
def test_each_status_has_its_reason(one):
    state = derive_state(one)
    held = one.has_lease and not one.is_cancelled
    reasons = {
        RunState.CANCELLED: one.is_cancelled,
        RunState.RUNNING: held and one.is_alive,
        RunState.INTERRUPTED: (held and not one.is_alive) or one.ended not in (None, "failed", "completed"),
        RunState.FAILED: one.ended == "failed",
        RunState.COMPLETED: one.ended == "completed" and not one.approvals,
        RunState.IN_DOUBT: one.ended == "doubtful" and one.is_doubtful,
        RunState.STOPPED: one.ended is None and not one.has_lease,
        RunState.WAITING: (held and one.is_alive and one.is_waiting) or not one.has_lease,
    }
    assert reasons[state]
    if one.has_lease and state is not RunState.CANCELLED:
        assert state in (RunState.RUNNING, RunState.WAITING, RunState.INTERRUPTED)  # a lease is about the present


@given(facts)
def test_a_run_that_ended_for_good_needs_no_lease_and_nothing_else(one):
    state = derive_state(one._replace(has_lease=False, is_alive=False, is_cancelled=False, approvals=0))
    if one.ended in ("failed", "completed"):
        assert state == one.ended
