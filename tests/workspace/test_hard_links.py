"""Files of several names in a watched directory: the kernel tells of an edit by one name, the snapshot has it by all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from trees import in_snapshot, on_disk, remove, write

from holdfast import SyncClient
from holdfast.workspace import walk as walking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def link(root: Path, there: bytes, new: bytes) -> None:
    write(root, new, b"")
    remove(root, new)
    os.link(os.path.join(os.fsencode(root), there), os.path.join(os.fsencode(root), new))


def edit(root: Path, path: bytes, content: bytes) -> None:
    """In place: all names have it."""
    with open(os.path.join(os.fsencode(root), path), "r+b") as file:
        file.write(content)


def test_an_edit_by_one_name_is_found_by_all(quick: SyncClient, root: Path) -> None:
    write(root, b"a/f", b"1")
    link(root, b"a/f", b"b/f")
    workspace = quick.workspace(root, watch=True)
    workspace.snapshot()
    for content in (b"2", b"3"):
        edit(root, b"a/f", content)
        assert [change.path for change in workspace.status()] == [b"a/f", b"b/f"]
        report = workspace.snapshot()
        assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)
    workspace.close()


def test_nor_does_it_matter_when_the_other_name_came(quick: SyncClient, root: Path) -> None:
    write(root, b"a/f", b"1")
    write(root, b"a/other", b"1")
    workspace = quick.workspace(root, watch=True)
    workspace.snapshot()
    link(root, b"a/f", b"b/f")
    edit(root, b"b/f", b"2")
    assert in_snapshot(workspace, workspace.snapshot().checkpoint_id) == on_disk(root)
    edit(root, b"b/f", b"3")
    assert in_snapshot(workspace, workspace.snapshot().checkpoint_id) == on_disk(root)
    edit(root, b"b/f", b"4")
    remove(root, b"b/f")  # its last edit came by a name that is gone
    assert [change.path for change in workspace.status()] == [b"a/f", b"b/f"]
    assert in_snapshot(workspace, workspace.snapshot().checkpoint_id) == on_disk(root)
    workspace.close()


def test_an_ignore_file_of_several_names_is_found_changed_and_costs_no_look_at_everything(
    quick: SyncClient, root: Path, monkeypatch
) -> None:
    write(root, b"templates/ignore", b"*.log\n")
    link(root, b"templates/ignore", b"d/.gitignore")
    for path in (b"d/run.log", b"d/run.tmp", b"far/away/f"):
        write(root, path, b"1")
    workspace = quick.workspace(root, watch=True)
    workspace.snapshot()
    entered: list[bytes] = []
    enter = walking.Walk._directory

    def noted(self, descriptor, path, rules):
        entered.append(path)
        return enter(self, descriptor, path, rules)

    monkeypatch.setattr(walking.Walk, "_directory", noted)
    assert workspace.snapshot().changed == 0
    assert entered == []
    edit(root, b"templates/ignore", b"*.tmp\n")
    report = workspace.snapshot()
    kept = {entry.path for entry in workspace.entries(report.checkpoint_id) if entry.path.startswith(b"d/")}
    assert kept == {b"d/.gitignore", b"d/run.log"}
    workspace.close()
