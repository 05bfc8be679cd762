"""Agents of smolagents, killed and started again: nothing is repeated, nothing is lost."""

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

require("smolagents")

PROGRAM = "smolagents_agent"
API_KEY = "sk-smolagents-0123456789"  # given to each model
REPEATABLE = ("model", "balance", "rating", "archive")
AT_A_TIME = 2  # tools of one step, in threads


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
    assert uninterrupted.commits > 50
    assert uninterrupted.outcome["answers"][2:] == [[["receipt c", "receipt d"], 80], "80 left after 2 payments"]
    assert [len(uninterrupted.calls[name]) for name in ("balance", "rating", "pay", "archive")] == [3, 4, 4, 2]
    assert len(uninterrupted.calls["model"]) == len(set(uninterrupted.calls["model"])) == 22


@survives("finished model calls", "replayed")
@pytest.mark.parametrize("when", ["kill_after_commits", "kill_before_commit"])
def test_an_office_killed_at_a_commit_goes_on(places, uninterrupted, when):
    points = spread(uninterrupted.commits, 5 if when == "kill_after_commits" else 3)
    for number in points if places.kind == "sqlite" else points[len(points) // 2 :][:1]:
        store, directory = places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, **{when: number}), directory)


def test_an_office_killed_at_a_random_moment_goes_on(sqlite_places, uninterrupted):
    chance = randomness("smolagents")
    for number in range(50 if SOAK else 3):
        store, directory = sqlite_places.make(f"at-{number}")
        moment = chance.uniform(0, uninterrupted.seconds)
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_after_seconds=moment), directory)


def test_an_office_goes_on_in_a_new_interpreter(sqlite_places, uninterrupted):
    store, directory = sqlite_places.make("killed")
    killed = run_until_done(PROGRAM, store, directory, fresh=True, kill_after_commits=uninterrupted.commits // 2)
    judge(uninterrupted, killed, directory)


def test_an_office_killed_in_a_call_repeats_that_call_only(sqlite_places, uninterrupted):
    for number in spread(sum(map(len, uninterrupted.calls.values()))):
        store, directory = sqlite_places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_in_call=number), directory)


@survives("API keys", "never stored")
def test_no_credential_is_stored(sqlite_places):
    store, directory = sqlite_places.make("killed")
    assert isinstance(run_program(PROGRAM, store, directory, kill_after_commits=12), Killed)
    assert_secret_is_not_stored(store, API_KEY, directory)
    run_program(PROGRAM, store, directory)
    assert_secret_is_not_stored(store, API_KEY, directory)
