"""Steps: recorded once, replayed on a resume, whatever became of the program between."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
from decimal import Decimal

import pytest
from call_recorder import Calls
from stores import Clock, Store

from holdfast import (
    LeaseHeldError,
    LeaseLostError,
    NewerVersionError,
    ResultNotKeptError,
    Retry,
    StepFailedError,
    SyncClient,
    UsageError,
)
from holdfast.codec.codec import Codec
from holdfast.runs.step import StepCall, inputs


class MyError(Exception):
    pass


class Stopped(Exception):  # noqa: N818 - the program dies of it
    """What a program dies of that is no failure of a step."""


def test_a_step_is_called_once_and_its_result_is_given_again(client: SyncClient):
    calls = Calls()
    result = {"when": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "sum": Decimal("1.10"), "pair": (1, {2, 3})}
    for _ in range(3):
        with client.run("s", agent_id="a") as run:
            assert run.step("plan", calls, result) == result
            assert type(run.step("plan", calls, result)["pair"]) is tuple
    assert len(calls.made) == 2


def test_a_program_that_died_goes_on_behind_its_last_step(store: Store):
    calls = Calls()

    def program(client: SyncClient, die: bool) -> list[object]:
        with client.run("s") as run:
            done = [run.step("one", calls, 1), run.step("two", calls, 2)]
            if die:
                raise Stopped
            return [*done, run.step("three", calls, 3)]

    with pytest.raises(Stopped):
        program(store.client(), die=True)
    assert program(store.client(), die=False) == [1, 2, 3]
    assert calls.made == [1, 2, 3]


def test_state_and_context_are_saved_with_the_steps_and_come_back(store: Store):
    with store.client().run("s", agent_id="a", state={"n": 0}, context={"who": "me"}) as run:
        assert not run.resumed
        run.state["n"] = run.step("count", lambda: 7)
        run.context["more"] = 1
        saved = run.save("counted")
    client = store.client()
    found = client.restore(saved)
    assert (found.execution_state, found.step_name, found.agent_id) == ({"n": 7}, "counted", "a")
    with client.run("s", agent_id="a", state={"n": 99}) as run:
        assert run.resumed
        assert (run.state, run.context) == ({"n": 7}, {"who": "me", "more": 1})
        run.state = {"n": 8}
    assert client.latest(session_id="s").execution_state == {"n": 8}


def test_what_a_program_does_with_a_result_does_not_change_the_record(client: SyncClient):
    for _ in range(3):
        with client.run("s") as run:
            result = run.step("list", lambda: [1])
            assert result == [1]
            result.append(2)


def test_a_finished_run_that_is_run_again_writes_nothing_but_its_lease(store: Store):
    client, recorder = store.recorded()
    with client.run("s") as run:
        run.step("one", lambda: 1)
    recorder.forget()
    with client.run("s") as run:
        run.step("one", lambda: 1)
    assert [commit for commit in recorder.commits if commit.record is not None] == []


def test_a_session_of_plain_saves_is_taken_up(client: SyncClient):
    client.save("a", session_id="s", execution_state={"x": 1}, context={"y": 2})
    with client.run("s", agent_id="a") as run:
        assert (run.resumed, run.state, run.context) == (True, {"x": 1}, {"y": 2})


def test_a_rollback_takes_the_records_back_with_the_state(client: SyncClient):
    calls = Calls()
    with client.run("s") as run:
        run.step("one", calls, 1)
        before = run.save("between")
        run.step("two", calls, 2)
    client.rollback("s", before)
    with client.run("s") as run:
        assert run.step("one", calls, 1) == 1
        assert run.step("two", calls, 22) == 22
    assert calls.made == [1, 2, 22]


def test_a_fork_takes_the_records_along(client: SyncClient):
    calls = Calls()
    with client.run("s") as run:
        run.step("one", calls, 1)
    client.fork(client.latest(session_id="s").checkpoint_id, "t")
    with client.run("t") as run:
        assert (run.step("one", calls, 11), run.step("two", calls, 2)) == (1, 2)
    with client.run("s") as run:
        assert run.step("two", calls, 22) == 22
    assert calls.made == [1, 2, 22]


def test_another_agent_that_goes_on_with_the_session_has_steps_of_its_own(client: SyncClient):
    with client.run("s", agent_id="writer") as run:
        assert run.step("ask", lambda: "written") == "written"
        handed = client.handoff(run.save("done"), "reviewer", lease=run.lease)
    assert client.get(handed).handoff_target == "reviewer"
    for _ in range(2):
        with client.run("s", agent_id="reviewer") as run:
            assert run.step("ask", lambda: "reviewed") == "reviewed"
    with client.run("s", agent_id="writer") as run:
        assert run.step("ask", lambda: "?") == "written"


def test_a_result_that_can_not_be_kept_is_refused_by_name(client: SyncClient):
    with pytest.raises(ResultNotKeptError, match="result of step 'odd'"), client.run("s") as run:
        run.step("odd", object)


def test_arguments_that_can_not_be_right(quick: SyncClient):
    for wrong in (
        {"autosave": 0}, {"autosave": "often"}, {"on_save_error": "ignore"}, {"context": {"holdfast.run": 1}},
        {"state_version": 0}, {"agent_id": 3},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            quick.run("s", **wrong)
    with quick.run("s") as run:
        with pytest.raises(UsageError, match="function"):
            run.step("x", 5)
        with pytest.raises(UsageError, match="async"):
            run.step("x", asyncio.sleep, 0)
        with pytest.raises(UsageError, match="retry"):
            run.step("x", int, retry="often")


# -- versions of the program -----------------------------------------------------------------------------------------


class TestOtherVersionsOfTheProgram:
    """A step is known by path, name and occurrence, so a new version of the program finds what it still asks for."""

    @pytest.fixture
    def calls(self, quick: SyncClient) -> Calls:
        calls = Calls()
        with quick.run("s") as run:
            for name in ("a", "b", "b", "c"):
                run.step(name, calls, name)
        calls.made.clear()
        return calls

    def test_added_steps_run_and_the_others_are_replayed(self, quick: SyncClient, calls: Calls):
        with quick.run("s") as run:
            results = [run.step(name, calls, name) for name in ("new", "a", "newer", "b", "b", "c")]
        assert results == ["new", "a", "newer", "b", "b", "c"]
        assert calls.made == ["new", "newer"]

    def test_removed_steps_are_left_out_and_found_again_if_they_come_back(self, quick: SyncClient, calls: Calls):
        with quick.run("s") as run:
            assert [run.step("b", calls, 1), run.step("c", calls, 1)] == ["b", "c"]
        with quick.run("s") as run:
            assert run.step("a", calls, 1) == "a"
        assert calls.made == []

    def test_reordered_steps_are_found(self, quick: SyncClient, calls: Calls):
        with quick.run("s") as run:
            assert [run.step(name, calls, 1) for name in ("c", "b", "a", "b")] == ["c", "b", "a", "b"]
        assert calls.made == []

    def test_a_renamed_step_is_a_new_one_unless_it_says_what_it_was(self, quick: SyncClient, calls: Calls):
        with quick.run("s") as run:
            assert run.step("fetch", calls, "again") == "again"
            assert run.step("look", calls, "again", was="c") == "c"
            assert [run.step("bee", calls, "again", was="b") for _ in range(3)] == ["b", "b", "again"]
        assert calls.made == ["again", "again"]

    def test_a_key_says_which_one_it_is_wherever_it_is_called(self, quick: SyncClient):
        calls = Calls()
        with quick.run("s") as run:
            for item in ("x", "y", "0"):
                run.step("do", calls, item, key=item)
            run.step("do", calls, "plain")
        with quick.run("s") as run:
            assert [run.step("do", calls, "?", key=item) for item in ("0", "y", "x")] == ["0", "y", "x"]
            assert run.step("do", calls, "?") == "plain"
        assert len(calls.made) == 4

    def test_names_with_any_characters_are_told_apart(self, quick: SyncClient):
        names = ["a", "a#0", "a#", "a%230", "a/b", "a!b", "", "\ud800"]
        for _ in range(2):
            with quick.run("s") as run:
                assert [run.step(name, lambda name=name: name) for name in names] == names

    def test_a_journal_of_a_newer_holdfast_is_refused(self, quick: SyncClient):
        found = quick.latest(session_id="s")
        assert found is None
        quick.save("a", session_id="s", context={"holdfast.run": {"v": 3, "tools": {}, "steps": []}})
        with pytest.raises(NewerVersionError, match="version 3"):
            quick.run("s", agent_id="a")
        quick.save("a", session_id="s")  # and the session is not held by who could not go on


# -- failures --------------------------------------------------------------------------------------------------------


class TestFailures:
    def test_one_that_the_program_went_on_from_is_raised_again(self, client: SyncClient):
        calls = Calls()

        def fails(error: Exception) -> None:
            calls(error)
            raise error

        for _ in range(2):
            with client.run("s") as run:
                with pytest.raises(ValueError, match="bad"):
                    run.step("fails", fails, ValueError("bad", 3))
                with pytest.raises((MyError, StepFailedError)) as mine:
                    run.step("mine", fails, MyError("of a class of its own"))
                with pytest.raises(MyError):
                    run.step("named", fails, MyError("x"), raises=[MyError])
                assert run.step("next", calls, 1) == 1
        assert len(calls.made) == 4
        assert (mine.type, mine.value.kind) == (StepFailedError, f"{__name__}.MyError")

    def test_one_that_ended_the_run_is_tried_again(self, store: Store):
        calls = Calls()

        def once() -> str:
            calls()
            if len(calls.made) == 1:
                raise ValueError("the first time")
            return "done"

        with pytest.raises(RuntimeError), store.client().run("s") as run:
            try:
                run.step("try", once)
            except ValueError as error:
                raise RuntimeError from error
        with store.client().run("s") as run:
            assert run.step("try", once) == "done"
        assert len(calls.made) == 2

    def test_retries_count_on_after_a_crash(self, store: Store):
        calls = Calls()
        policy = Retry(attempts=3, seconds=0)

        def fails() -> None:
            calls()
            if len(calls.made) == 2:
                raise KeyboardInterrupt  # the process goes in the middle of the second attempt
            raise ConnectionError("gone")

        with pytest.raises(KeyboardInterrupt), store.client().run("s") as run:
            run.step("call", fails, retry=policy)
        with store.client().run("s") as run, pytest.raises(ConnectionError):
            run.step("call", fails, retry=policy)
        assert len(calls.made) == 4  # one was not recorded: attempts 1, (2), 2, 3
        with store.client().run("s") as run, pytest.raises(ConnectionError):
            run.step("call", fails, retry=policy)
        assert len(calls.made) == 4

    def test_only_what_the_policy_names_is_tried_again(self, quick: SyncClient):
        calls = Calls()

        def fails() -> None:
            calls()
            raise ValueError

        with quick.run("s") as run, pytest.raises(ValueError):
            run.step("x", fails, retry=Retry(attempts=5, seconds=0, on=(OSError,)))
        assert len(calls.made) == 1

    def test_waits_between_attempts_grow(self):
        policy = Retry(seconds=0.5, factor=2, most_seconds=3)
        assert [policy.wait(n) for n in (1, 2, 3, 4, 5000)] == [0.5, 1, 2, 3, 3]
        with pytest.raises(UsageError):
            Retry(attempts=0)


# -- one at a time ---------------------------------------------------------------------------------------------------


def test_a_session_that_is_being_run_is_held(store: Store):
    with store.client().run("s", holder="one") as run:
        run.step("one", lambda: 1)
        other = store.client()
        with pytest.raises(LeaseHeldError, match="one"):
            other.run("s", wait=0)
        with pytest.raises(LeaseHeldError):
            other.save("a", session_id="s")
    with store.client().run("s", wait=0) as run:
        assert run.step("one", lambda: 2) == 1


def test_who_lost_the_lease_can_not_go_on(store: Store):
    client, clock = store.client(), Clock()
    clock.rules(client)
    other = store.client()
    clock.rules(other)
    with pytest.raises(LeaseLostError), client.run("s") as run:
        run.step("one", lambda: 1)
        clock.forward(3600)
        with other.run("s", wait=0) as second:
            second.step("two", lambda: 2)
        run.step("three", lambda: 3)
    assert client.latest(session_id="s").step_name == "two"
    with client.run("s") as run:
        assert [run.step(name, lambda: 9) for name in ("one", "two", "three")] == [1, 2, 9]


def test_what_a_step_without_arguments_is_called_with_is_told_as_that_of_any_other():
    codec = Codec()
    encoded = codec.encode([[], {}])
    assert inputs(codec, StepCall(place="p", name="n", fn=print)) == [hashlib.sha256(encoded).digest()[:16]]
