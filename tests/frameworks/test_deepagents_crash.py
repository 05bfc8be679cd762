"""Deep agents on the LangGraph saver: files of a `StateBackend`, and files on disk by the middleware of the page."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crash_kit import (
    PROGRAMS,
    SETTINGS,
    Finished,
    assert_calls_not_repeated,
    assert_same_outcome,
    run_program,
    run_until_done,
    spread,
)
from framework_environments import require
from paths import ROOT

require("deepagents")

from holdfast import SyncClient
from holdfast.errors import WorkspaceChangedError

PROGRAM = "deepagents_agent"
REPEATABLE = ("model", "write")


@pytest.mark.slow
def test_files_come_back_with_the_conversation(tmp_path):
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        example = ROOT / "examples" / "frameworks" / "deepagents_agent.py"
        return subprocess.run(
            [sys.executable, str(example), *words], cwd=tmp_path, env=SETTINGS | {"HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip

    assert run("--crash").returncode == -9
    # The second life reads the file that the first one wrote.
    assert run().stdout.splitlines()[-1] == "I have noted: kelp"


# -- files on disk -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Finished:
    directory = tmp_path_factory.mktemp("whole")
    finished = run_program(PROGRAM, f"sqlite:///{directory / 'store.db'}", directory)
    assert isinstance(finished, Finished)
    return finished


class Notes:
    """The program in this process, after its two turns."""

    def __init__(self, directory: Path, client: SyncClient) -> None:
        spec = importlib.util.spec_from_file_location(PROGRAM, PROGRAMS / f"{PROGRAM}.py")
        assert spec is not None
        assert spec.loader is not None
        self.program: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.program)
        self.client = client
        self.directory = directory
        self.project = directory / "project"
        self.agent = self.make_agent(self.project)
        self.workspace = client.workspace(self.project)
        for text in self.program.TURNS:
            self.program.take_turn(self.agent, text)

    def make_agent(self, project: Path) -> Any:
        return self.program.make_agent(self.client, self.directory, project)

    def go_back(self) -> Any:
        _, first = self.program.recipe["list_turns"](self.agent, self.program.THREAD)
        return self.program.recipe["go_back"](self.agent, self.workspace, first)

    def read(self, project: Path | None = None) -> dict[str, str]:
        return self.program.read_files(project or self.project)


@pytest.fixture
def notes(tmp_path) -> Iterator[Notes]:
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        yield Notes(tmp_path, client)


FIRST = {"notes.md": "first draft\n", "turn-1.md": "1\n"}
SECOND = {"notes.md": "second draft\n", "turn-1.md": "1\n", "turn-2.md": "2\n"}


@pytest.mark.parametrize("when", ["kill_after_commits", "kill_before_commit"])
def test_a_deep_agent_killed_at_a_commit_goes_on(sqlite_places, uninterrupted, when):
    assert uninterrupted.outcome["files"] == SECOND
    assert uninterrupted.outcome["snapshot"] == [str(name.encode()) for name in SECOND]
    for number in spread(uninterrupted.commits, 4):
        store, directory = sqlite_places.make(f"at-{number}")
        killed = run_until_done(PROGRAM, store, directory, **{when: number})
        assert_same_outcome(uninterrupted, killed)
        assert_calls_not_repeated(uninterrupted, killed, repeatable=REPEATABLE, under_way=2)


def test_a_deep_agent_killed_in_a_call_goes_on(sqlite_places, uninterrupted):
    for number in spread(sum(map(len, uninterrupted.calls.values())), 4):
        store, directory = sqlite_places.make(f"at-{number}")
        killed = run_until_done(PROGRAM, store, directory, kill_in_call=number)
        assert_same_outcome(uninterrupted, killed)
        assert_calls_not_repeated(uninterrupted, killed, repeatable=REPEATABLE, under_way=2)


def test_files_go_back_with_the_thread(notes):
    assert notes.read() == SECOND
    notes.go_back()
    assert notes.read() == FIRST
    state = notes.agent.get_state(notes.program.THREAD)
    assert (len(state.values["messages"]), state.next) == (5, ())
    notes.workspace.undo()
    assert notes.read() == SECOND


def test_a_thread_goes_on_with_the_files_it_went_back_to(notes):
    notes.go_back()
    notes.program.take_turn(notes.agent, "other draft")
    assert len(notes.agent.get_state(notes.program.THREAD).values["messages"]) == 10
    assert notes.read() == FIRST | {"notes.md": "other draft\n", "turn-2.md": "2\n"}


def test_a_fork_has_its_own_files(notes):
    notes.agent.checkpointer.copy_thread("notes", "try-2")
    thread = {"configurable": {"thread_id": "try-2"}}
    _, first = notes.program.recipe["list_turns"](notes.agent, thread)
    forked = notes.workspace.fork(first.values["files_at"], notes.directory / "project-2")
    assert notes.read(forked.directory) == FIRST
    other = notes.make_agent(forked.directory)
    other.update_state(first.config, None)
    notes.program.take_turn(other, "other draft", thread)
    assert [one.content for one in other.get_state(thread).values["messages"]][-1] == "written 2"
    assert notes.read(forked.directory)["notes.md"] == "other draft\n"
    assert notes.read() == SECOND


def test_a_change_of_a_person_is_not_overwritten(notes):
    (notes.project / "notes.md").write_text("by hand\n")
    with pytest.raises(WorkspaceChangedError):
        notes.go_back()
    assert notes.read() == SECOND | {"notes.md": "by hand\n"}
    assert len(notes.agent.get_state(notes.program.THREAD).values["messages"]) == 10  # neither did the thread
