"""Commands that read write nothing: neither to the store nor to the directory that they are about.

`READING` has the forms of each command that only read. A command that is not in it makes this fail: say which forms of
it read, or that none does (an empty list).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trees_on_disk import tree_of
from volumes import run as run_as_root
from volumes import small_disk
from world import make_world

from holdfast import SyncClient
from holdfast.cli.main import COMMANDS

pytestmark = [pytest.mark.every_store, pytest.mark.slow]  # in sum: many commands on many stores

READING: dict[str, list[str]] = {
    "init": [],
    "demo": [],
    "status": ["", "--dir {directory}", "--left-out --dir {directory}"],
    "sessions": [""],
    "runs": [""],
    "resume": [],
    "timeline": ["main", "main --graph", "pending"],
    "show": ["main", "{second} --search two", "pending"],
    "save": [],
    "snap": [],
    "diff": ["{first} {second}", "--dir {directory}", "{snapshot} --dir {directory}"],
    "compare": ["main what-if"],
    "bisect": ["main -- true"],
    "replay": [],
    "events": ["--after start --no-follow"],
    "restore": ["{snapshot} --dir {directory} --dry-run"],
    "rollback": ["main {first} --dry-run"],
    "undo": ["--dry-run"],
    "redo": ["--dry-run"],
    "op": ["log"],
    "fork": [],
    "adopt": [],
    "hook": [],
    "rewind": ["{snapshot} --dir {directory} --dry-run"],
    "watch": [],
    "handoff": [],
    "inbox": ["approver"],
    "claim": [],
    "release": [],
    "contract": ["list", "show draft", "diff draft@1 draft@1"],
    "topics": ["", "news"],
    "publish": [],
    "messages": ["news"],
    "dead": ["news"],
    "redeliver": [],
    "team": ["main"],
    "cancel": ["main --dry-run"],
    "convert": ["main --to openai_chat"],
    "approvals": [""],
    "approve": [],
    "reject": [],
    "effects": ["", "orders"],
    "resolve": [],
    "tag": [""],
    "pin": [""],
    "expire": ["{second} --dry-run"],
    "retain": ["--keep-last 1"],
    "gc": ["--dry-run"],
    "du": ["", "main"],
    "scan": ["", "main"],
    "export": ["main -o -"],  # with a file's name, that file and nothing else
    "import": ["{bundle} --dry-run"],
    "copy": [],
    "langgraph": ["threads"],
    "verify": ["", "main"],
    "migrate": ["--check"],
    "doctor": [""],
    "trust": ["--list"],
    "completion": ["bash"],
    "retry": [],
    "ui": [],
    "encrypt": [],
    "keys": [],
    "rekey": [],
    "work": [],
}
FORMS = [pytest.param(name, form, id=f"{name} {form}".strip()) for name, forms in READING.items() for form in forms]


class Crash(BaseException):
    """The end of the process that writes."""


def make_store(root: Path, kind: str) -> dict[str, str]:
    place = root / ".holdfast" / ("store" if kind == "files" else "store.db")
    open_client = SyncClient.files if kind == "files" else SyncClient.sqlite
    with open_client(place, durability="fast") as client:
        ids = make_world(root, client)
        client.save("worker", session_id="pending", execution_state={"step": 1})
        (root / "project" / "b.txt").write_text("since\n")
        if kind == "files":
            # The last commit was cut off while it was carried out: one file of it is at its place, the others are not.
            client._ctx.backend.backend._journal.reached = cut_off
            with pytest.raises(Crash):
                client.save("worker", session_id="pending", execution_state={"step": 2}, step_name="the last")
            assert (place / "journal").exists()
    return {**ids, "directory": str(root / "project"), "bundle": str(root / "bundle.hf")}


def cut_off(point: str) -> None:
    if point == "moved":
        raise Crash


@pytest.fixture(scope="module", params=["sqlite", "files"])
def made_once(request, tmp_path_factory) -> tuple[Path, dict[str, str]]:
    root = tmp_path_factory.mktemp(request.param)
    return root, make_store(root, request.param)


@pytest.fixture
def read_world(made_once, tmp_path) -> tuple[Path, dict[str, str]]:
    """A copy for each command: one that carries out the pending commit must not hide it from the others."""
    root, ids = made_once
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    return copy, {name: value.replace(str(root), str(copy)) for name, value in ids.items()}


def words_of(ids: dict[str, str], name: str, form: str) -> list[str]:
    ours, dashes, command = form.partition("-- ")  # what follows is a command line of its own
    return [name, *(word.format_map(ids) for word in [*ours.split(), *dashes.split(), *command.split()])]


def test_every_command_is_said_to_read_or_to_write():
    assert set(READING) == set(COMMANDS)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_command_that_reads_writes_nothing(run, read_world, monkeypatch, tmp_path, name, form):
    root, ids = read_world
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(root)
    monkeypatch.setenv("HOME", str(home))
    before = tree_of(root)
    result = run(*words_of(ids, name, form))
    assert result.exit_code == 0, result.output
    assert tree_of(root) == before
    assert list(home.iterdir()) == []


def test_what_was_cut_off_is_shown_and_carried_out_by_the_next_writer(run, tmp_path, monkeypatch):
    make_store(tmp_path, "files")
    monkeypatch.chdir(tmp_path)
    assert "the last" in run("timeline", "pending").output
    assert '"step": 2' in run("show", "pending", "--json").output
    assert Path(".holdfast/store/journal").exists()
    assert run("tag", "later", "pending").exit_code == 0
    assert not Path(".holdfast/store/journal").exists()
    assert "the last" in run("timeline", "pending").output
    assert run("verify").exit_code == 0


def without(store: Path, *names: str) -> None:
    """What git does not carry, or somebody has left out of a copy."""
    for name in names:
        place = store / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("missing", [["lock"], ["lock", "order"], ["staged"], ["lock", "order", "staged"]])
def test_a_copy_without_what_writers_need_is_read_as_it_is(run, tmp_path, monkeypatch, missing):
    ids = make_store(tmp_path, "files")
    monkeypatch.chdir(tmp_path)
    store = tmp_path / ".holdfast/store"
    with SyncClient.files(store) as client:
        client.save("worker", session_id="pending", execution_state={"step": 3})  # and what was cut off is carried out
    expected = [run(*words_of(ids, name, form)).stdout for name, form in (("events", "--after start --no-follow"),)]
    without(store, *missing)
    before = tree_of(tmp_path)
    assert [run("events", "--after", "start", "--no-follow").stdout] == expected
    for name, form in (("sessions", ""), ("verify", ""), ("timeline", "pending"), ("du", "")):
        assert run(*words_of(ids, name, form)).exit_code == 0
    assert tree_of(tmp_path) == before
    assert run("tag", "later", "pending").exit_code == 0
    assert run("verify").exit_code == 0


@pytest.mark.slow
@pytest.mark.root
def test_a_store_of_files_on_a_file_system_that_can_only_be_read(tmp_path):
    """A checkout on a read-only medium, with a commit that was cut off: everything that reads works."""
    with small_disk(tmp_path / "disk") as disk:
        ids = make_store(disk, "files")
        (disk / ".holdfast/store/lock").unlink()
        try:
            run_as_root("mount", "-o", "remount,ro", disk)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"a file system can't be made read-only here: {error.stderr.decode().strip()}")
        before = tree_of(disk)
        for form in (
            "sessions",
            "timeline pending",
            "show pending",
            "verify",
            "status",
            "diff --dir {directory}",
            "du",
        ):
            name, _, rest = form.partition(" ")
            command = [sys.executable, "-m", "holdfast", *words_of(ids, name, rest)]
            done: Any = subprocess.run(command, cwd=disk, capture_output=True, text=True, timeout=240, check=False)
            assert done.returncode == 0, done.stderr
        refused: Any = subprocess.run(
            [sys.executable, "-m", "holdfast", "tag", "later", "pending"],
            cwd=disk, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert refused.returncode == 1
        assert "mounted read-only" in refused.stderr
        assert tree_of(disk) == before
