"""The command line on sessions of every framework: they read and fork like any other session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from crash_kit import SETTINGS, Finished, run_program
from framework_environments import EXPECTED, GRAPHS, is_installed

FRAMEWORKS = [name for name in EXPECTED if name not in GRAPHS]


class CommandLine:
    def __init__(self, store: str, directory: Path) -> None:
        self._store = store
        self._directory = directory

    def __call__(self, *words: str, exit_code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            cwd=self._directory, env=SETTINGS | {"HOME": str(self._directory), "HOLDFAST_URL": self._store},
            capture_output=True, text=True, encoding="utf-8", timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == exit_code, done.stderr + done.stdout
        return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_commands_of_time_travel_work_on_a_session_of_a_framework(framework, sqlite_places, tmp_path):
    if not is_installed(framework):
        pytest.skip(f"{framework} is not installed: `make framework-tests` installs it")
    store, directory = sqlite_places.make("whole")
    assert isinstance(run_program(f"{framework}_agent", store, directory), Finished)
    holdfast = CommandLine(store, directory)

    session = max(json.loads(holdfast("sessions", "--json"))["sessions"], key=lambda one: one["saves"])["session_id"]
    timeline = json.loads(holdfast("timeline", session, "--json"))["checkpoints"]
    names = [one["step_name"] for one in timeline]
    assert "pay" in " ".join(map(str, names))  # steps carry the names of agents and tools

    messages = json.loads(holdfast("show", session, "--messages", "--json"))
    assert {one["role"] for one in messages} >= {"user", "assistant"}
    assert "pay" in holdfast("show", session, "--messages")

    middle = timeline[len(timeline) // 2]["checkpoint_id"]
    assert holdfast("diff", middle, session)

    good = 'import json, sys; sys.exit(len(json.load(sys.stdin)["execution_state"].get("messages", [])) > 0)'
    assert json.loads(holdfast("bisect", session, "--json", "--", sys.executable, "-c", good))

    holdfast("fork", middle, "--session", "try-2")
    assert json.loads(holdfast("show", "try-2", "--json"))["parent_id"]
    holdfast("rollback", session, middle, "--yes")
    holdfast("undo", "--yes")

    bundle = tmp_path / "all.holdfast"
    holdfast("export", "--output", str(bundle))
    other = CommandLine(f"sqlite:///{tmp_path}/other.db", directory)
    other("import", str(bundle))
    assert json.loads(other("show", session, "--messages", "--json")) == messages
    assert "0 problems" in other("verify")
