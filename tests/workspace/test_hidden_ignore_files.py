"""Ignore files that ignore themselves, and excluded markers: a restore follows their rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import Store
from trees import on_disk, remove, write

from holdfast import SyncClient
from holdfast.format.files import snapshot as objects
from holdfast.model.snapshot import RuleFile, Snapshot

MANY = 300  # more than a snapshot names


def test_what_an_ignore_file_left_out_that_ignored_itself_is_not_deleted(client: SyncClient, root: Path) -> None:
    write(root, b"code.py", b"first\n")
    write(root, b"out/.gitignore", b"*\n")
    for number in range(MANY):
        write(root, b"out/%d.csv" % number, b"results\n")
    workspace = client.workspace(root)
    first = workspace.snapshot().checkpoint_id
    remove(root, b"out/.gitignore")
    write(root, b"code.py", b"second\n")
    workspace.snapshot()

    report = workspace.restore(first)

    assert len(list((root / "out").iterdir())) == MANY
    assert [action.path for action in report.actions] == [b"code.py"]
    assert {one.path for one in report.left} == {b"out/%d.csv" % number for number in range(MANY)}
    assert {one.reason for one in report.left} == {"excluded"}


def test_nor_is_what_came_to_be_after_it_had_gone(quick: SyncClient, root: Path) -> None:
    write(root, b".gitignore", b".gitignore\n*.log\n")
    write(root, b"code.py", b"first\n")
    workspace = quick.workspace(root)
    first = workspace.snapshot().checkpoint_id
    remove(root, b".gitignore")
    write(root, b"run.log", b"a long run\n")
    write(root, b"code.py", b"second\n")
    workspace.snapshot()

    report = workspace.restore(first)

    assert on_disk(root).keys() == {b"code.py", b"run.log"}
    assert [(one.path, one.reason) for one in report.left] == [(b"run.log", "excluded")]


def test_what_is_ignored_now_by_a_file_that_ignores_itself_is_not_written(client: SyncClient, root: Path) -> None:
    write(root, b"f", b"1")
    workspace = client.workspace(root)
    first = workspace.snapshot().checkpoint_id
    remove(root, b"f")
    write(root, b".gitignore", b"*\n")
    workspace.snapshot()

    for report in (workspace.plan(first), workspace.restore(first)):
        assert report.actions == ()
        assert [(one.path, one.reason) for one in report.left] == [(b"f", "excluded")]
    assert on_disk(root).keys() == {b".gitignore"}


@pytest.mark.parametrize("rules", [b"g\nd\n", b"*\n"], ids=["seen", "hidden"])
def test_undoing_says_what_it_leaves_because_it_is_excluded_by_now(
    client: SyncClient, root: Path, rules: bytes
) -> None:
    write(root, b"g", b"1")
    write(root, b"d/h", b"1")
    workspace = client.workspace(root)
    first = workspace.snapshot().checkpoint_id
    remove(root, b"g")
    remove(root, b"d")
    workspace.snapshot()
    workspace.restore(first)
    write(root, b".gitignore", rules)

    report = workspace.undo().files

    assert report.actions == ()
    assert [(one.path, one.reason) for one in report.left] == [
        (b"d", "excluded"),
        (b"d/h", "excluded"),
        (b"g", "excluded"),
    ]
    assert on_disk(root).keys() == {b".gitignore", b"d", b"d/h", b"g"}


def test_undoing_does_not_write_what_was_excluded_since(quick: SyncClient, root: Path) -> None:
    workspace = quick.workspace(root)
    first = workspace.snapshot().checkpoint_id
    write(root, b"g", b"1")
    workspace.snapshot()
    workspace.restore(first)
    write(root, b".gitignore", b"g\n")

    report = workspace.undo().files

    assert [(one.path, one.reason) for one in report.left] == [(b"g", "excluded")]
    assert on_disk(root).keys() == {b".gitignore"}


def test_directories_that_were_left_out_for_what_was_in_them_are_not_emptied(quick: SyncClient, root: Path) -> None:
    for number in range(MANY):
        write(root, b"caches/%d/CACHEDIR.TAG" % number, b"")
        write(root, b"caches/%d/entry" % number, b"1")
    workspace = quick.workspace(root)
    first = workspace.snapshot().checkpoint_id
    for number in range(MANY):
        remove(root, b"caches/%d/CACHEDIR.TAG" % number)
    workspace.snapshot()

    report = workspace.restore(first)

    assert report.actions == ()
    assert len(list((root / "caches").glob("*/entry"))) == MANY


def test_a_marker_that_is_ignored_marks_all_the_same(quick: SyncClient, root: Path) -> None:
    write(root, b".gitignore", b"package.json\n")
    write(root, b"package.json", b"{}\n")
    workspace = quick.workspace(root)
    first = workspace.snapshot().checkpoint_id
    remove(root, b"package.json")
    write(root, b"node_modules/left-pad/index.js", b"pad\n")
    workspace.snapshot()

    workspace.restore(first)

    assert b"node_modules/left-pad/index.js" in on_disk(root)


def test_what_would_be_restored_is_said_while_an_ignore_file_is_in_no_snapshot_yet(
    quick: SyncClient, root: Path
) -> None:
    write(root, b".gitignore", b"*.tmp\n")
    write(root, b"run.log", b"1")
    workspace = quick.workspace(root)
    first = workspace.snapshot().checkpoint_id
    remove(root, b"run.log")
    write(root, b".gitignore", b"*.log\n")

    report = workspace.plan(first)

    assert [action.path for action in report.actions] == [b".gitignore"]
    assert [(one.path, one.reason) for one in report.left] == [(b"run.log", "excluded")]


def test_an_ignore_file_that_is_read_in_part_counts_as_far_as_it_is_read(quick: SyncClient, root: Path) -> None:
    write(root, b".gitignore", b"*.log\n" + b"# nothing but a comment\n" * 50_000)
    workspace = quick.workspace(root)
    first = workspace.snapshot().checkpoint_id
    remove(root, b".gitignore")
    write(root, b"run.log", b"1")
    workspace.snapshot()

    workspace.restore(first)

    assert b"run.log" in on_disk(root)


@pytest.mark.parametrize("watch", [False, True])
def test_rules_that_are_hidden_are_in_every_snapshot_until_they_change(
    sqlite_store: Store, root: Path, watch: bool
) -> None:
    write(root, b"out/.gitignore", b"*\n")
    write(root, b"other/f", b"1")
    workspace = sqlite_store.client().workspace(root, watch=watch)
    hidden = (RuleFile(b"out/.gitignore", b"*\n"),)
    assert workspace.snapshot().snapshot.deciding == hidden
    write(root, b"other/f", b"2")
    assert workspace.snapshot().snapshot.deciding == hidden
    write(root, b"other/f", b"3")
    from_the_cache = sqlite_store.client().workspace(root)
    assert from_the_cache.snapshot().snapshot.deciding == hidden
    write(root, b"out/.gitignore", b"*\n!f\n")
    assert [one.content for one in workspace.snapshot().snapshot.deciding] == [b"*\n!f\n"]
    remove(root, b"out/.gitignore")
    assert workspace.snapshot().snapshot.deciding == ()
    workspace.close()


def test_a_snapshot_without_hidden_rules_is_the_same_bytes_as_ever() -> None:
    plain = objects.pack(Snapshot(reference="", tree=b"\0" * 32, files=1))
    assert b"rules" not in plain
    assert objects.unpack(plain).deciding == ()
    hidden = Snapshot(reference="", tree=b"\0" * 32, deciding=(RuleFile(b"out/.gitignore", b"*\n"),))
    assert objects.unpack(objects.pack(hidden)).deciding == hidden.deciding
