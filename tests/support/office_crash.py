"""Checks of the crash tests of all frameworks: an office of agents with tools, one of which pays.

A framework's test file declares its `Office`; each of its tests is one check. The programs are killed and started
again by `crash_kit`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from campaign import SOAK, randomness
from crash_kit import (
    MODEL,
    Finished,
    Killed,
    assert_called_once,
    assert_calls_not_repeated,
    assert_same_outcome,
    run_program,
    run_until_done,
    spread,
)
from stored_secrets import assert_secret_is_not_stored

at_a_commit = pytest.mark.parametrize("when", ["kill_after_commits", "kill_before_commit"])


@dataclass(frozen=True, slots=True)
class Office:
    """A program in tests/frameworks/programs, and what it does if nothing interrupts it."""

    program: str
    api_key: str  # of the program's models
    calls: Mapping[str, int]  # of its tools
    repeatable: Collection[str] = (MODEL, "balance", "lookup", "archive")  # all calls but those that are made once
    at_a_time: int = 2  # calls of a turn that are under way together
    once: Collection[str] = ("pay",)
    commits: int = 30  # it makes more than so many
    model_calls: int | None = None  # where no two of them are equal

    def run(self, places: Any) -> Finished:
        """Run the program without a kill."""
        whole = run_program(self.program, *places.make("whole"))
        assert isinstance(whole, Finished)
        assert whole.commits > self.commits
        assert {name: len(lines) for name, lines in whole.calls.items() if name != MODEL} == self.calls
        if self.model_calls is not None:
            assert len(whole.calls[MODEL]) == len(set(whole.calls[MODEL])) == self.model_calls
        return whole

    def judge(self, whole: Finished, interrupted: Finished, directory: Path) -> None:
        assert_same_outcome(whole, interrupted)
        assert_calls_not_repeated(whole, interrupted, repeatable=self.repeatable, under_way=self.at_a_time)
        for name in self.once:
            assert_called_once(directory, name)

    # -- checks --------------------------------------------------------------------------------------------------------

    def check_kills_at_commits(self, places: Any, when: str) -> None:
        """`when` is how `run_program` is told of a commit. One commit in the middle is enough on a server."""
        whole = self.run(places)
        points = spread(whole.commits)
        for number in points if places.kind == "sqlite" else points[len(points) // 2 :][:1]:
            self._kill(whole, places, f"at-{number}", **{when: number})

    def check_kills_at_random_moments(self, places: Any) -> None:
        whole = self.run(places)
        chance = randomness(self.program)
        for number in range(50 if SOAK else 3):
            self._kill(whole, places, f"at-{number}", kill_after_seconds=chance.uniform(0, whole.seconds))

    def check_new_interpreter(self, places: Any) -> None:
        whole = self.run(places)
        self._kill(whole, places, "killed", fresh=True, kill_after_commits=whole.commits // 2)

    def check_kills_in_calls(self, places: Any) -> None:
        whole = self.run(places)
        for number in spread(sum(map(len, whole.calls.values()))):
            self._kill(whole, places, f"at-{number}", kill_in_call=number)

    def check_no_credential_is_stored(self, places: Any) -> None:
        store, directory = places.make("killed")
        assert isinstance(run_program(self.program, store, directory, kill_after_commits=12), Killed)
        assert_secret_is_not_stored(store, self.api_key, directory)
        run_program(self.program, store, directory)
        assert_secret_is_not_stored(store, self.api_key, directory)

    def _kill(self, whole: Finished, places: Any, name: str, **kill: Any) -> None:
        store, directory = places.make(name)
        self.judge(whole, run_until_done(self.program, store, directory, **kill), directory)
