"""Crews, agents and flows of CrewAI, killed and started again: nothing is repeated, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign import SOAK, randomness
from crash_kit import (
    Finished,
    Killed,
    assert_called_once,
    assert_calls_not_repeated,
    assert_same_outcome,
    run_program,
    run_until_done,
    spread,
)
from framework_environments import require
from stored_secrets import assert_secret_is_not_stored
from survives import survives

require("crewai")

PROGRAM = "crewai_agent"
API_KEYS = ("sk-crewai-0123456789", "sk-environment-0123456789")  # given to a model, and found in the environment
# A method of a flow that was cut off begins again; its finished model and tool calls are not repeated.
REPEATABLE = ("model", "balance", "lookup", "archive", "method")
AT_A_TIME = 2  # a method, and a call within it


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Finished:
    directory = tmp_path_factory.mktemp("whole")
    finished = run_program(PROGRAM, f"sqlite:///{directory / 'store.db'}", directory)
    assert isinstance(finished, Finished)
    return finished


def judge(uninterrupted: Finished, interrupted: Finished, directory: Path) -> None:
    assert_same_outcome(uninterrupted, interrupted)
    assert_calls_not_repeated(uninterrupted, interrupted, repeatable=REPEATABLE, under_way=AT_A_TIME)
    assert_called_once(directory, "pay")


def test_an_uninterrupted_office_makes_each_call_once(uninterrupted):
    assert uninterrupted.commits > 80
    assert len(uninterrupted.calls["method"]) == 3
    assert [len(uninterrupted.calls[name]) for name in ("balance", "lookup", "pay", "archive")] == [3, 3, 4, 4]
    assert len(uninterrupted.calls["model"]) == len(set(uninterrupted.calls["model"])) == 29


@survives("finished model calls", "replayed, also within a task")
@pytest.mark.parametrize("when", ["kill_after_commits", "kill_before_commit"])
def test_an_office_killed_at_a_commit_goes_on(places, uninterrupted, when):
    points = spread(uninterrupted.commits, 5 if when == "kill_after_commits" else 3)
    for number in points if places.kind == "sqlite" else points[len(points) // 2 :][:1]:
        store, directory = places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, **{when: number}), directory)


@survives("a declared tool under way", "looked up by its probe")
def test_an_office_killed_at_a_random_moment_goes_on(sqlite_places, uninterrupted):
    chance = randomness("crewai")
    for number in range(50 if SOAK else 3):
        store, directory = sqlite_places.make(f"at-{number}")
        moment = chance.uniform(0, uninterrupted.seconds)
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_after_seconds=moment), directory)


@survives("a method under way", "runs again, with its calls replayed")
def test_an_office_goes_on_in_a_new_interpreter(sqlite_places, uninterrupted):
    store, directory = sqlite_places.make("killed")
    killed = run_until_done(PROGRAM, store, directory, fresh=True, kill_after_commits=uninterrupted.commits // 2)
    judge(uninterrupted, killed, directory)


@survives("finished tool calls", "replayed")
def test_an_office_killed_in_a_call_repeats_that_call_only(sqlite_places, uninterrupted):
    for number in spread(sum(map(len, uninterrupted.calls.values()))):
        store, directory = sqlite_places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_in_call=number), directory)


@survives("API keys", "never stored")
def test_no_credential_is_stored(sqlite_places):
    store, directory = sqlite_places.make("killed")
    assert isinstance(run_program(PROGRAM, store, directory, kill_after_commits=12), Killed)
    for key in API_KEYS:
        assert_secret_is_not_stored(store, key, directory)
    run_program(PROGRAM, store, directory)
    for key in API_KEYS:
        assert_secret_is_not_stored(store, key, directory)
