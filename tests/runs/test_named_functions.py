"""Named functions: what `runnable` refuses, what `start` records, and what else runs in the session of a start."""

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast import ConflictError, Retry, Runnables, UsageError, runnable

LAST = datetime.max.replace(tzinfo=UTC)


@pytest.fixture
def names():
    return Runnables()


def drain(client, names):
    return client.work(drain=True, runnables=names)


# -- runnable --------------------------------------------------------------------------------------------------------


def test_a_decorator_without_a_name_is_refused_at_once():
    with pytest.raises(UsageError, match="a runnable has a name"):

        @runnable
        def nameless(run):
            pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": None},
        {"version": True},
        {"resumes": "12"},
        {"resumes": 1},
        {"resumes": [None]},
        {"contract": 5},
        {"agent_id": 5},
        {"policy": 4},
        {"autosave": "never"},
        {"retry": 0},
        {"timeout": 0},
    ],
)
def test_wrong_options_are_refused_when_a_function_is_named(names, wrong):
    with pytest.raises(UsageError):
        runnable("fine", registry=names, **wrong)
    assert names.names() == []


@pytest.mark.parametrize("wrong", [{"seconds": float("nan")}, {"most_seconds": -1}, {"factor": float("nan")}])
def test_a_retry_that_can_not_be_reckoned_with_is_refused(wrong):
    with pytest.raises(UsageError):
        Retry(**wrong)


def test_each_run_has_a_state_and_a_context_of_its_own(quick, names):
    @runnable("counts", registry=names, state={"seen": []}, context={"seen": []})
    def counts(run):
        run.state["seen"].append(run.session_id)
        run.context["seen"].append(run.session_id)
        return run.state["seen"], run.context["seen"]

    sessions = [quick.start("counts", session_id=f"s{number}") for number in range(3)]
    drain(quick, names)
    assert [quick.run_status(session).result for session in sessions] == [([one], [one]) for one in sessions]


# -- start -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment", [LAST, datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), LAST - timedelta(microseconds=1)]
)
def test_a_run_may_begin_at_the_end_of_time_and_hides_no_other(client, names, moment):
    runnable("fine", registry=names)(lambda run: 1)
    client.start("fine", session_id="never", at=moment)
    client.start("fine", session_id="now")
    assert drain(client, names) == 1
    assert {one.session_id: str(one.status) for one in client.runs()} == {"never": "waiting", "now": "completed"}
    assert client.run_status("never").due == min(moment, LAST)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1900, 1, 1, tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=12))),
        datetime.now(UTC) - timedelta(days=1),
    ],
)
def test_a_run_that_was_to_begin_in_the_past_begins_now(client, names, moment):
    runnable("fine", registry=names)(lambda run: 1)
    client.start("fine", session_id="s", at=moment)
    assert drain(client, names) == 1
    assert client.run_status("s").status == "completed"


def test_a_moment_is_kept_to_the_microsecond(client, names):
    moment = datetime(2399, 12, 31, 23, 59, 59, 999999, UTC)
    client.start("fine", session_id="s", at=moment)
    assert client.run_status("s").due == moment


@pytest.mark.slow
def test_the_time_limit_of_a_run_that_begins_later_counts_from_then(client, names):
    @runnable("later", registry=names, timeout=60)
    def later(run):
        time.sleep(0.1)
        return run.step("one", lambda: 1)

    client._ctx.now_us = client._client._ctx.now_us = lambda: time.time_ns() // 1000 + offset
    offset = 0
    client.start("later", session_id="s", at=datetime.now(UTC) + timedelta(hours=1))
    offset = 3_605_000_000
    assert drain(client, names) == 1
    assert client.run_status("s").status == "completed"


@pytest.mark.every_store
def test_a_start_without_a_session_is_one_commit_and_reads_nothing(client, names, monkeypatch):
    runnable("fine", registry=names)(lambda run, number: number)
    client.start("fine", 0)
    reads = []
    backend, rows = client._ctx.backend, client._ctx.backend.rows
    monkeypatch.setattr(backend, "rows", lambda keys: reads.append(keys) or rows(keys))
    sessions = [client.start("fine", number) for number in range(1, 5)]
    assert reads == []
    monkeypatch.undo()
    assert drain(client, names) == 5
    assert [client.run_status(session).result for session in sessions] == [1, 2, 3, 4]


def test_the_order_of_named_arguments_makes_no_other_start(client, names):
    runnable("sums", registry=names)(lambda run, **given: sum(given.values()))
    client.start("sums", session_id="s", a=1, b=2)
    client.start("sums", session_id="s", b=2, a=1)
    assert drain(client, names) == 1
    assert client.run_status("s").result == 3


# -- other lives in the session ----------------------------------------------------------------------------------------


@pytest.mark.every_store
def test_a_program_of_its_own_in_the_session_of_a_started_run_does_not_end_it(client, names):
    runnable("fine", registry=names)(lambda run: run.step("one", lambda: "from the worker"))
    with client.run("s") as run:
        client.start("fine", session_id="s")  # while the program runs
        run.result = "by hand"
    assert client.run_status("s").waits[0].kind == "worker"
    with pytest.raises(ValueError), client.run("s"):  # and before the worker comes
        raise ValueError
    assert drain(client, names) == 1
    found = client.run_status("s")
    assert (found.status, found.function, found.result) == ("completed", "fine", "from the worker")


@pytest.mark.every_store
def test_a_program_of_its_own_may_take_a_turn_between_two_that_were_started(client, names):
    runnable("talk", registry=names, turns=True)(lambda run, text: text)
    client.start("talk", "a", session_id="s")
    drain(client, names)
    with pytest.raises(KeyError), client.run("s"):
        raise KeyError
    assert client.run_status("s").status == "failed"
    with pytest.raises(ConflictError, match="another program"):
        client.start("talk", "b", session_id="s")
    with client.run("s"):
        pass
    client.start("talk", "b", session_id="s")
    drain(client, names)
    assert client.run_status("s").result == "b"


def test_a_failed_run_that_fails_by_hand_as_well_can_still_be_retried(client, names):
    is_broken = True

    @runnable("fragile", registry=names, retry=1)
    def fragile(run):
        if is_broken:
            raise ValueError
        return "done"

    client.start("fragile", session_id="s")
    drain(client, names)
    with pytest.raises(ValueError), client.run("s") as run:
        fragile(run)
    assert (client.run_status("s").status, client.run_status("s").attempts) == ("failed", 2)
    is_broken = False
    client.retry("s")
    drain(client, names)
    assert client.run_status("s").result == "done"
