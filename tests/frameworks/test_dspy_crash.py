"""A program of DSPy over the wrappers of its page, killed and started again."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from campaign import SOAK, randomness
from crash_kit import (
    PROGRAMS,
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

require("dspy")

from call_log import read_calls

from holdfast import SyncClient

PROGRAM = "dspy_agent"
API_KEY = "sk-dspy-0123456789"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Finished:
    directory = tmp_path_factory.mktemp("whole")
    finished = run_program(PROGRAM, f"sqlite:///{directory / 'store.db'}", directory)
    assert isinstance(finished, Finished)
    return finished


@pytest.fixture
def program() -> Any:
    """The program, in this process."""
    spec = importlib.util.spec_from_file_location(PROGRAM, PROGRAMS / f"{PROGRAM}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judge(uninterrupted: Finished, interrupted: Finished, directory: Any) -> None:
    assert_same_outcome(uninterrupted, interrupted)
    assert_calls_not_repeated(uninterrupted, interrupted, repeatable=("model",))
    assert_called_once(directory, "pay")


def test_an_uninterrupted_program_makes_each_call_once(uninterrupted):
    assert uninterrupted.outcome["answer"] == "receipt 7; receipt 8; receipt 9"
    assert [len(uninterrupted.calls[name]) for name in ("model", "pay")] == [5, 3]


@pytest.mark.parametrize("when", ["kill_after_commits", "kill_before_commit"])
def test_a_program_killed_at_a_commit_goes_on(places, uninterrupted, when):
    points = spread(uninterrupted.commits, 5 if when == "kill_after_commits" else 3)
    for number in points if places.kind == "sqlite" else points[len(points) // 2 :][:1]:
        store, directory = places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, **{when: number}), directory)


def test_a_program_killed_at_a_random_moment_goes_on(sqlite_places, uninterrupted):
    chance = randomness("dspy")
    for number in range(50 if SOAK else 2):
        store, directory = sqlite_places.make(f"at-{number}")
        moment = chance.uniform(0, uninterrupted.seconds)
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_after_seconds=moment), directory)


def test_a_program_killed_in_a_call_repeats_that_call_only(sqlite_places, uninterrupted):
    for number in spread(sum(map(len, uninterrupted.calls.values()))):
        store, directory = sqlite_places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PROGRAM, store, directory, kill_in_call=number), directory)


def test_a_finished_program_returns_the_same_prediction(sqlite_places, uninterrupted):
    store, directory = sqlite_places.make("twice")
    first, second = (run_program(PROGRAM, store, directory) for _ in range(2))
    assert first.outcome == second.outcome == uninterrupted.outcome
    assert second.calls == uninterrupted.calls  # those of both lives


def test_the_model_reads_that_an_outcome_is_unknown(tmp_path, program, monkeypatch):
    class Interrupted(BaseException):
        pass

    def interrupt(*_: Any) -> None:
        log(*_)
        if _[1] == "pay" and len(read_calls(tmp_path)["pay"]) == 1:
            raise Interrupted

    log = program.log_call
    monkeypatch.setattr(program, "log_call", interrupt)
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        with pytest.raises(Interrupted):
            program.run_program(client, tmp_path, "Pay the invoice 7.", probe=None)
        said = program.run_program(client, tmp_path, "Pay the invoice 7.", probe=None)
    assert "EffectUnknownError" in said.trajectory["observation_0"]
    assert read_calls(tmp_path)["pay"] == ["[7]"]


def test_a_person_approves_a_tool(tmp_path, program):
    def life() -> Any:
        with SyncClient.sqlite(tmp_path / "store.db") as client:
            return program.run_program(client, tmp_path, "Pay the invoice 7.", approve="finance")

    for _ in range(2):
        with pytest.raises(program.recipe["RunEnded"]) as ended:
            life()
        assert type(ended.value.__cause__).__name__ == "ApprovalPendingError"
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        [asked] = client.approvals()
        client.decide(asked.approval_id, "approve", by="ann")
    assert life().answer == "receipt 7"
    assert len(read_calls(tmp_path)["model"]) == 3


def test_no_credential_is_stored(sqlite_places):
    store, directory = sqlite_places.make("killed")
    assert isinstance(run_program(PROGRAM, store, directory, kill_after_commits=5), Killed)
    assert_secret_is_not_stored(store, API_KEY, directory)
    run_program(PROGRAM, store, directory)
    assert_secret_is_not_stored(store, API_KEY, directory)
