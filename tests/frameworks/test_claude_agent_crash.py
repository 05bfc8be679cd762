"""A clerk of the Claude Agent SDK, killed and started again: it pays once, and nothing that is stored is lost.

Each life starts the CLI, which takes half a second. So few points are tried, all of them in `make soak`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from anthropic_server import API_KEY
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

require("claude_agent")

PROGRAM = "claude_agent_agent"
POINTS = 3
REPEATABLE = ("model", "balance")
# The CLI mirrors its transcript with a delay of 100 ms, but no tool begins before its call is stored. So a kill loses
# at most one tool's result and the model's answer to it: the model is asked for the call again, the call is made again
# if it may be, and the model is asked for the answer.
LOST = 3


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    where = tmp_path_factory.mktemp("whole")
    ended = run_program(PROGRAM, f"sqlite:///{where}/store.db", where / "directory")
    assert isinstance(ended, Finished)
    assert [len(ended.calls[name]) for name in ("balance", "pay", "model")] == [2, 2, 10]
    return ended


def judge(uninterrupted: Finished, interrupted: Finished, directory: Path) -> None:
    assert_same_outcome(uninterrupted, interrupted)
    assert_calls_not_repeated(uninterrupted, interrupted, repeatable=REPEATABLE, under_way=LOST)
    assert_called_once(directory, "pay")


@survives("the conversation", "is resumed by a new CLI, on any machine")
@pytest.mark.parametrize("when", ["kill_after_commits", "kill_before_commit"])
def test_a_clerk_killed_at_a_commit_goes_on(uninterrupted, sqlite_places, when):
    for number in spread(uninterrupted.commits - 5, POINTS):  # how many entries share a commit varies a little
        store, directory = sqlite_places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, **{when: number}), directory)


@pytest.mark.servers
@pytest.mark.parametrize("places", ["postgres", "redis"], indirect=True)
def test_a_clerk_killed_at_a_commit_to_a_server_goes_on(uninterrupted, places):
    store, directory = places.make("killed")
    half = uninterrupted.commits // 2
    judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_after_commits=half), directory)


@survives("finished model and tool calls", "at most the last tool's are repeated")
def test_a_clerk_killed_at_a_random_moment_goes_on(uninterrupted, sqlite_places):
    chance = randomness("claude agent")
    for number in range(50 if SOAK else 1):
        store, directory = sqlite_places.make(f"at-{number}")
        moment = chance.uniform(0, uninterrupted.seconds)
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_after_seconds=moment), directory)


def test_a_clerk_goes_on_in_a_new_interpreter(uninterrupted, sqlite_places):
    store, directory = sqlite_places.make("killed")
    half = uninterrupted.commits // 2
    judge(uninterrupted, run_until_done(PROGRAM, store, directory, fresh=True, kill_after_commits=half), directory)


@survives("a model call under way", "is made again")
def test_a_clerk_killed_in_a_call_pays_once(uninterrupted, sqlite_places):
    calls = sum(map(len, uninterrupted.calls.values()))
    for number in spread(calls, POINTS - 1):
        store, directory = sqlite_places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_in_call=number), directory)


@survives("an effect of an in-process tool", "is carried out once")
def test_a_clerk_killed_while_it_pays_pays_once(uninterrupted, sqlite_places):
    store, directory = sqlite_places.make("killed")
    killed = run_until_done(PROGRAM, store, directory, kill_in_call=4)
    assert killed.lives == 2
    judge(uninterrupted, killed, directory)


@survives("API keys", "are never stored")
def test_no_credential_is_stored(uninterrupted, sqlite_places):
    store, directory = sqlite_places.make("killed")
    assert isinstance(run_program(PROGRAM, store, directory, kill_after_commits=uninterrupted.commits // 2), Killed)
    assert_secret_is_not_stored(store, API_KEY, directory)
    run_program(PROGRAM, store, directory)
    assert_secret_is_not_stored(store, API_KEY, directory)
