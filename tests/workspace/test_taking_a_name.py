"""Something takes the name of something else: a snapshot that builds upon the one before it is the one that would be taken anew."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from trees import in_snapshot, on_disk, remove, write

from holdfast import SyncClient
from holdfast.backends.memory import MemoryBackend
from holdfast.model.workspace import Snapshot
from holdfast.workspace import walk as walking


def taken_anew(root: Path, **options) -> Snapshot:
    """The snapshot of somebody who knows nothing of the directory yet."""
    client = SyncClient(MemoryBackend())
    try:
        return client.workspace(root, **options).snapshot().snapshot
    finally:
        client.close()


@pytest.mark.parametrize("how", [{}, {"deep": True}, {"hints": ["env"]}], ids=["walk", "deep", "hints"])
@pytest.mark.parametrize("watch", [False, True])
def test_a_file_whose_name_a_directory_has_that_is_left_out_is_gone(
    quick: SyncClient, root: Path, watch: bool, how: dict
) -> None:
    write(root, b"env", b"KEY=1")
    workspace = quick.workspace(root, watch=watch)
    workspace.snapshot()
    remove(root, b"env")
    write(root, b"env/pyvenv.cfg", b"home = /usr\n")
    assert [(change.status, change.path) for change in workspace.status()] == [("D", b"env")]
    report = workspace.snapshot(**how)
    assert report.changed == 1
    assert workspace.entries(report.checkpoint_id) == []
    assert report.snapshot == taken_anew(root)
    forked = workspace.fork(report.checkpoint_id, root.parent / "forked")
    assert list(forked.directory.iterdir()) == []
    workspace.close()


def test_a_file_whose_name_a_directory_has_that_cannot_be_read_is_gone(
    quick: SyncClient, root: Path, monkeypatch
) -> None:
    write(root, b"closed", b"1")
    workspace = quick.workspace(root)
    workspace.snapshot()
    remove(root, b"closed")
    write(root, b"closed/inside", b"2")
    opening = os.open

    def refusing(path, flags, *args, **named) -> int:
        if path == b"closed":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opening(path, flags, *args, **named)

    monkeypatch.setattr(walking.os, "open", refusing)
    report = workspace.snapshot()
    assert workspace.entries(report.checkpoint_id) == []
    assert [one.path for one in report.snapshot.skipped] == [b"closed"]
    monkeypatch.undo()
    remove(root, b"closed")
    report = workspace.snapshot()
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root) == {}
    assert report.snapshot == taken_anew(root)
