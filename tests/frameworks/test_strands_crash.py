"""Agents, graphs and swarms of Strands, killed and started again: nothing is repeated, nothing is lost."""

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

require("strands")

PROGRAM = "strands_agent"
API_KEY = "sk-strands-0123456789"  # of the program's model
REPEATABLE = ("model", "balance", "lookup", "archive", "spell", "close", "stamp")
AT_A_TIME = 2  # calls of a turn: the clerk's two tools, the graph's two nodes


def judge(uninterrupted: Finished, interrupted: Finished, directory: Path) -> None:
    assert_same_outcome(uninterrupted, interrupted)
    assert_calls_not_repeated(uninterrupted, interrupted, repeatable=REPEATABLE, under_way=AT_A_TIME)
    assert_called_once(directory, "pay")


@pytest.mark.parametrize("when", ["kill_after_commits", "kill_before_commit"])
def test_an_office_killed_at_a_commit_goes_on(places, when):
    uninterrupted = run_program(PROGRAM, *places.make("whole"))
    assert isinstance(uninterrupted, Finished)
    assert uninterrupted.commits > 30
    counts = {name: len(lines) for name, lines in uninterrupted.calls.items() if name != "model"}
    assert counts == {"balance": 3, "lookup": 3, "pay": 3, "archive": 3, "spell": 2, "stamp": 2, "close": 2}
    points = spread(uninterrupted.commits)
    for number in points if places.kind == "sqlite" else points[len(points) // 2 :][:1]:
        store, directory = places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, **{when: number}), directory)


def test_an_office_killed_at_a_random_moment_goes_on(sqlite_places):
    uninterrupted = run_program(PROGRAM, *sqlite_places.make("whole"))
    assert isinstance(uninterrupted, Finished)
    chance = randomness("strands")
    for number in range(50 if SOAK else 3):
        store, directory = sqlite_places.make(f"at-{number}")
        moment = chance.uniform(0, uninterrupted.seconds)
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_after_seconds=moment), directory)


def test_an_office_goes_on_in_a_new_interpreter(sqlite_places):
    uninterrupted = run_program(PROGRAM, *sqlite_places.make("whole"))
    assert isinstance(uninterrupted, Finished)
    store, directory = sqlite_places.make("killed")
    killed = run_until_done(PROGRAM, store, directory, fresh=True, kill_after_commits=uninterrupted.commits // 2)
    judge(uninterrupted, killed, directory)


def test_an_office_killed_in_a_call_repeats_that_call_only(sqlite_places):
    uninterrupted = run_program(PROGRAM, *sqlite_places.make("whole"))
    assert isinstance(uninterrupted, Finished)
    calls = sum(map(len, uninterrupted.calls.values()))
    for number in spread(calls):
        store, directory = sqlite_places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_in_call=number), directory)


def test_no_credential_is_stored(sqlite_places):
    store, directory = sqlite_places.make("killed")
    assert isinstance(run_program(PROGRAM, store, directory, kill_after_commits=12), Killed)
    assert_secret_is_not_stored(store, API_KEY, directory)
    run_program(PROGRAM, store, directory)
    assert_secret_is_not_stored(store, API_KEY, directory)
