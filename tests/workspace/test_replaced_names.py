"""A name changes its kind: an incremental snapshot equals one that is taken from scratch."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trees import in_snapshot, on_disk, remove, tick, write

from holdfast import SyncClient
from holdfast.backends.memory import MemoryBackend
from holdfast.model.snapshot import Snapshot
from holdfast.workspace.scan import walk as walking


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


def test_a_directory_that_was_made_anew_counts_once(quick: SyncClient, root: Path) -> None:
    write(root, b"a/n/f", b"1111")
    workspace = quick.workspace(root, watch=True)
    workspace.snapshot()
    remove(root, b"a")
    write(root, b"a/n/f", b"")
    report = workspace.snapshot()
    assert (report.snapshot.files, report.snapshot.directories, report.snapshot.size) == (1, 2, 0)
    assert report.snapshot == taken_anew(root)
    workspace.close()


@pytest.mark.parametrize("how", ["walk", "watch", "hints"])
def test_a_marker_that_is_ignored_marks_what_comes_beside_it(quick: SyncClient, root: Path, how: str) -> None:
    write(root, b".gitignore", b"package.json\n")
    write(root, b"package.json", b"{}")
    workspace = quick.workspace(root, watch=how == "watch")
    workspace.snapshot()
    write(root, b"node_modules/left-pad/index.js", b"pad")
    report = workspace.snapshot(hints=["node_modules"] if how == "hints" else None)
    assert report.snapshot == taken_anew(root)
    assert [one.path for one in report.snapshot.excluded] == [b"node_modules", b"package.json"]
    workspace.close()


@pytest.mark.parametrize("instead", [None, b"a file"])
def test_a_hint_below_what_is_gone_says_that_it_is_gone(quick: SyncClient, root: Path, instead: bytes | None) -> None:
    write(root, b"n/m/k", b"1")
    write(root, b"other", b"1")
    workspace = quick.workspace(root)
    workspace.snapshot()
    remove(root, b"n")
    if instead is not None:
        write(root, b"n", instead)
    report = workspace.snapshot(hints=["n/m/k"])
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)
    assert report.snapshot == taken_anew(root)


def test_a_hint_that_is_a_directory_is_about_what_is_in_it(quick: SyncClient, root: Path) -> None:
    write(root, b"d/e/f", b"1")
    write(root, b"other", b"1")
    workspace = quick.workspace(root)
    workspace.snapshot()
    remove(root, b"d")
    write(root, b"d/e/g", b"22")
    write(root, b"other", b"2")
    report = workspace.snapshot(hints=["d"])
    assert workspace.read(report.checkpoint_id, "other") == b"1"
    assert [change.path for change in workspace.status()] == [b"other"]


# -- any edits ---------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from([b"a", b"b", b"c.log"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
# A directory that is left out: for its name, for what is in it, for what is beside it, for another store in it.
LEFT_OUT = st.sampled_from([b"x.log/f", b"pyvenv.cfg", b"CACHEDIR.TAG", b"node_modules/f", b".holdfast/store.db"])
EDITS = st.one_of(
    st.tuples(st.just("file"), PATHS, st.binary(max_size=4)),
    st.tuples(st.just("dir"), PATHS, st.none()),
    st.tuples(st.just("left out"), PATHS, LEFT_OUT),
    st.tuples(st.just("remove"), PATHS, st.none()),
    st.tuples(st.just("again"), PATHS, st.none()),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("link"), PATHS, PATHS),
    st.tuples(st.just("rules"), PATHS, st.sampled_from([b"*\n", b"*.log\n", b"b/\n!c.log\n",
                                                        b".gitignore\npackage.json\n"])),
    st.tuples(st.just("marker"), PATHS, st.sampled_from([b"package.json", b"Cargo.toml"])),
)  # fmt: skip


def _clear(root: Path, path: bytes) -> None:
    """Makes room: whatever is at the path, or is no directory above it, is gone."""
    parts = path.split(b"/")
    for end in range(1, len(parts)):
        above = os.path.join(os.fsencode(root), *parts[:end])
        if os.path.lexists(above) and (os.path.islink(above) or not os.path.isdir(above)):
            os.unlink(above)
    remove(root, path)


def _edit(root: Path, doing: str, path: bytes, value: bytes | None) -> list[bytes]:
    """One edit, over whatever is there. The paths that it touched."""
    whole = os.path.join(os.fsencode(root), path)
    if doing in ("file", "dir"):
        _clear(root, path)
        write(root, path, value)
    elif doing == "left out":
        assert value is not None
        _clear(root, path)
        write(root, path + b"/" + value, b"SQLite format 3\0")
        if value.startswith(b"node_modules"):
            write(root, path + b"/package.json", b"{}")
    elif doing == "remove":
        remove(root, path)
    elif doing == "again" and os.path.isdir(whole):
        inside = on_disk(whole)
        remove(root, path)
        write(root, path, None)
        for below, (kind, _, content) in inside.items():
            if kind == "file":
                write(root, path + b"/" + below, content[1:])
    elif doing in ("rename", "link"):
        assert value is not None
        _clear(root, value)
        other = os.path.join(os.fsencode(root), value)
        inside_itself = (value + b"/").startswith(path + b"/") or (path + b"/").startswith(value + b"/")
        if inside_itself or not os.path.lexists(whole) or (doing == "link" and os.path.isdir(whole)):
            return [path, value]
        os.makedirs(os.path.dirname(other), exist_ok=True)
        (os.rename if doing == "rename" else os.link)(whole, other)
        return [path, value]
    elif doing in ("rules", "marker"):
        assert value is not None
        name = b".gitignore" if doing == "rules" else value
        _clear(root, path)
        write(root, path + b"/" + name, value)
        return [path, path + b"/" + name]
    return [path]


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.lists(st.lists(EDITS, max_size=5), min_size=1, max_size=5),
    how=st.sampled_from(["walk", "watch", "hints", "watch and hints"]),
)
def test_after_any_edits_a_snapshot_is_the_one_that_would_be_taken_anew(
    tmp_path_factory, monkeypatch, steps, how: str
) -> None:
    """Its counts, and what it says of what was left out, included."""
    monkeypatch.setattr(walking, "RACY_NS", 0)  # nothing is looked at again for being young
    root = tmp_path_factory.mktemp("names") / "project"
    root.mkdir()
    client = SyncClient(MemoryBackend())
    workspace = client.workspace(root, watch="watch" in how)
    workspace.snapshot()
    try:
        for edits in steps:
            touched = [path for one in edits for path in _edit(root, *one)]
            hints = [os.fsdecode(path) for path in touched] if "hints" in how else None
            tick(root)
            changes = {change.path for change in workspace.status()}
            report = workspace.snapshot(hints=hints)
            assert report.snapshot == taken_anew(root)
            assert report.changed == len(changes)
    finally:
        workspace.close()
        client.close()
