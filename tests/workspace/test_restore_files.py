"""Restores of files: exact, refused after a change, undone, and resumed after a crash."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from plain_directory import PlainDirectory
from restore_trees import Tree, on_disk, put, trees

from holdfast import SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.errors import CheckpointNotFoundError, RestoreInterruptedError, WorkspaceChangedError
from holdfast.workspace.restore import apply, execute
from holdfast.workspace.restore.request import RestoreOptions

FIRST: Tree = {
    b"keep.txt": ("file", 0o644, b"kept"),
    b"edit.txt": ("file", 0o600, b"one"),
    b"gone.txt": ("file", 0o444, b"was here"),
    b"dir": ("dir", 0o700, b""),
    b"dir/run.sh": ("file", 0o750, b"#!/bin/sh\n"),
    b"empty": ("dir", 0o755, b""),
    b"link": ("symlink", 0o777, b"keep.txt"),
    b"swap": ("dir", 0o755, b""),
    b"swap/inside": ("file", 0o644, b"in a directory"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    put(root, FIRST)
    return root


@pytest.fixture
def directory(quick: SyncClient, root: Path) -> PlainDirectory:
    return PlainDirectory(quick, root)


def wreck(root: Path) -> None:
    """What an agent may do."""
    (root / "edit.txt").write_bytes(b"two")
    (root / "gone.txt").unlink()
    (root / "new").mkdir()
    (root / "new" / "file").write_bytes(b"new")
    (root / "swap" / "inside").unlink()
    (root / "swap").rmdir()
    (root / "swap").write_bytes(b"a file now")
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "dir").chmod(0o755)
    (root / "empty").rmdir()


def test_everything_is_as_it_was(directory, root):
    first = directory.snapshot()
    wreck(root)
    wrecked = on_disk(root)
    second = directory.snapshot()
    report = directory.restore(first)
    assert on_disk(root) == FIRST
    assert report.changed == len({*FIRST, *wrecked}) - sum(wrecked.get(path) == FIRST.get(path) for path in FIRST)
    assert report.complete
    directory.restore(second)
    assert on_disk(root) == wrecked


def test_undo_puts_back_what_was_there_and_undoing_that_restores_again(directory, root):
    first = directory.snapshot()
    wreck(root)
    wrecked = on_disk(root)
    directory.snapshot()
    directory.restore(first)
    run_inline(directory.restoring.undo(RestoreOptions()))
    assert on_disk(root) == wrecked
    run_inline(directory.restoring.undo(RestoreOptions()))
    assert on_disk(root) == FIRST


def test_restoring_what_is_there_does_nothing(directory, root):
    first = directory.snapshot()
    before = {path: os.lstat(os.path.join(os.fsencode(root), path)).st_ctime_ns for path in FIRST}
    report = directory.restore(first)
    assert report.changed == 0
    assert report.safety_id is None
    assert directory.safeties == []
    assert before == {path: os.lstat(os.path.join(os.fsencode(root), path)).st_ctime_ns for path in FIRST}


def test_what_changed_since_the_last_snapshot_is_refused_with_a_list(directory, root):
    first = directory.snapshot()
    wreck(root)
    directory.snapshot()
    (root / "edit.txt").write_bytes(b"by hand")
    (root / "unrelated").write_bytes(b"by hand")
    before = on_disk(root)
    with pytest.raises(WorkspaceChangedError, match=r"edit\.txt, unrelated") as refused:
        directory.restore(first)
    assert refused.value.paths == (b"edit.txt", b"unrelated")
    assert on_disk(root) == before
    assert directory.safeties == []


def test_what_the_user_changed_is_kept_when_asked_for(directory, root):
    first = directory.snapshot()
    wreck(root)
    directory.snapshot()
    (root / "edit.txt").write_bytes(b"by hand")
    (root / "mine").write_bytes(b"by hand")
    report = directory.restore(first, keep="user")
    assert on_disk(root) == FIRST | {
        b"edit.txt": ("file", 0o600, b"by hand"),
        b"mine": ("file", (root / "mine").stat().st_mode & 0o7777, b"by hand"),
    }
    assert [one.path for one in report.left] == [b"edit.txt", b"mine"]


def test_forced_it_is_overwritten_and_undo_brings_it_back(directory, root):
    first = directory.snapshot()
    (root / "edit.txt").write_bytes(b"by hand")
    directory.restore(first, force=True)
    assert on_disk(root) == FIRST
    run_inline(directory.restoring.undo(RestoreOptions()))
    assert (root / "edit.txt").read_bytes() == b"by hand"
    # It is still the user's own change: another restore is refused again.
    with pytest.raises(WorkspaceChangedError):
        directory.restore(first)


def test_undo_is_refused_for_what_was_changed_since_the_restore(directory, root):
    first = directory.snapshot()
    wreck(root)
    directory.snapshot()
    directory.restore(first)
    (root / "edit.txt").write_bytes(b"by hand")
    directory.taken = []
    with pytest.raises(WorkspaceChangedError, match=r"edit\.txt"):
        run_inline(directory.restoring.undo(RestoreOptions()))
    assert (root / "edit.txt").read_bytes() == b"by hand"
    (root / "other").write_bytes(b"made since")  # no business of the undo's
    run_inline(directory.restoring.undo(RestoreOptions(keep="user")))
    assert (root / "edit.txt").read_bytes() == b"by hand"
    assert (root / "other").read_bytes() == b"made since"
    assert (root / "swap").read_bytes() == b"a file now"


def test_single_paths(directory, root):
    first = directory.snapshot()
    wreck(root)
    directory.snapshot()
    report = directory.restore(first, paths=(b"swap", b"gone.txt"))
    assert {action.path for action in report.actions} == {b"swap", b"swap/inside", b"gone.txt"}
    assert (root / "swap" / "inside").read_bytes() == b"in a directory"
    assert (root / "edit.txt").read_bytes() == b"two"
    run_inline(directory.restoring.undo(RestoreOptions()))
    assert (root / "swap").read_bytes() == b"a file now"
    assert not (root / "gone.txt").exists()


def test_a_dry_run_says_the_same_and_does_nothing(directory, root):
    from holdfast.workspace.restore.request import RestoreTarget

    first = directory.snapshot()
    wreck(root)
    directory.snapshot()
    before = on_disk(root)
    planned = run_inline(directory.restoring.plan(RestoreTarget(snapshot=first), RestoreOptions()))
    assert on_disk(root) == before
    assert planned.dry_run
    done = directory.restore(first)
    assert (planned.actions, planned.left) == (done.actions, done.left)


def test_there_may_be_nothing_to_undo(directory):
    with pytest.raises(CheckpointNotFoundError, match="nothing to undo"):
        run_inline(directory.restoring.undo(RestoreOptions()))


def test_excluded_files_stay_and_so_do_the_directories_that_hold_them(directory, root):
    directory.excluded = lambda path: path.endswith(b".log")
    first = directory.snapshot()
    (root / "new").mkdir()
    (root / "new" / "a.log").write_bytes(b"log")
    (root / "new" / "code").write_bytes(b"code")
    (root / "swap" / "b.log").write_bytes(b"log")
    directory.snapshot()
    report = directory.restore(first)
    assert (root / "new" / "a.log").read_bytes() == b"log"
    assert (root / "swap" / "b.log").read_bytes() == b"log"
    assert not (root / "new" / "code").exists()
    assert [one.path for one in report.left] == [b"new"]


def test_a_directory_with_excluded_files_does_not_become_a_file(directory, root):
    directory.excluded = lambda path: path.endswith(b".log")
    (root / "place").write_bytes(b"a file")
    first = directory.snapshot()
    (root / "place").unlink()
    (root / "place").mkdir()
    (root / "place" / "a.log").write_bytes(b"log")
    (root / "edit.txt").write_bytes(b"two")
    directory.snapshot()
    before = on_disk(root)
    with pytest.raises(WorkspaceChangedError, match="place"):
        directory.restore(first)
    assert on_disk(root) == before


def test_large_files_and_holes(directory, root):
    data = os.urandom(300_000) + bytes(3_000_000) + os.urandom(70_000) + bytes(1_000_000)
    (root / "large").write_bytes(data)
    first = directory.snapshot()
    (root / "large").write_bytes(b"small now")
    (root / "zeros").write_bytes(bytes(2_000_000))
    second = directory.snapshot()
    directory.restore(first)
    assert (root / "large").read_bytes() == data
    assert (root / "large").stat().st_blocks * 512 < 2_500_000, "holes are kept as holes"
    (root / "large").write_bytes(data[:-1] + b"x")
    directory.snapshot()
    directory.restore(first)
    assert (root / "large").read_bytes() == data
    directory.restore(second)
    assert (root / "zeros").read_bytes() == bytes(2_000_000)


@given(trees(depth=2), trees(depth=2))
def test_any_tree_becomes_any_other_and_back(one, other):
    with tempfile.TemporaryDirectory() as folder, SyncClient.memory() as client:
        first_root, second_root = Path(folder, "first"), Path(folder, "second")
        for place, tree in ((first_root, one), (second_root, other)):
            place.mkdir()
            put(place, tree)
        directory, elsewhere = PlainDirectory(client, first_root), PlainDirectory(client, second_root)
        first, second = directory.snapshot(), elsewhere.snapshot()
        report = directory.restore(second)
        assert on_disk(first_root) == other
        if not report.changed:
            return
        assert directory.snapshot().reference == second.reference
        run_inline(directory.restoring.undo(RestoreOptions()))
        assert on_disk(first_root) == one
        assert directory.snapshot().reference == first.reference


# -- what happens while it runs --------------------------------------------------------------------------------------


class Dying(BaseException):
    """Stands for the end of the process: nobody catches it."""


def dies_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The process ends in the middle of the `count`-th action."""
    done = 0
    carried_out = {name: getattr(apply.Applier, name) for name in ("delete", "make_directory", "make_link", "put_file")}

    def dying(name: str):
        def action(self, *given):
            nonlocal done
            done += 1
            if done == count and name == "put_file":
                unfinished = self.begin_file(given[0])
                os.write(unfinished.descriptor, b"half of")
                os.close(unfinished.descriptor)
            if done >= count:
                raise Dying
            carried_out[name](self, *given)

        return action

    for name in carried_out:
        monkeypatch.setattr(apply.Applier, name, dying(name))


@pytest.mark.parametrize("count", range(1, 10))
def test_what_a_restore_that_was_cut_off_has_not_put_in_its_place_is_in_no_snapshot(
    quick: SyncClient, root, monkeypatch, count
):
    workspace = quick.workspace(root)
    first = workspace.snapshot().checkpoint_id
    shutil.rmtree(root)
    root.mkdir()
    workspace.snapshot()
    with monkeypatch.context() as patched:
        dies_after(patched, count)
        with pytest.raises(Dying):
            workspace.restore(first)
    left = [path for path in on_disk(root) if b".holdfast-" in path]
    report = workspace.snapshot()
    assert not [entry.path for entry in workspace.entries(report.checkpoint_id) if b".holdfast-" in entry.path]
    tops = {path for path in left if path.rpartition(b"/")[0] not in left}
    assert {one.path for one in report.snapshot.excluded} == tops
    assert {one.rule for one in report.snapshot.excluded} <= {"a temporary file of a restore"}
    workspace.roll_back()
    assert on_disk(root) == {}


def test_names_that_only_resemble_temporary_ones_are_kept(quick: SyncClient, root):
    ours = [".holdfast-0123456789ab-7", "dir/.holdfast-0123456789ab-12", ".holdfast-0123456789ab-at-work"]
    theirs = [
        ".holdfast-notes",
        ".holdfast-0123456789ab",
        ".holdfast-0123456789ab-7.txt",
        "dir/.holdfast-0123456789AB-7",
    ]
    for name in (*ours, *theirs):
        (root / name).write_text("x")
    workspace = quick.workspace(root)
    taken = {entry.path.decode() for entry in workspace.entries(workspace.snapshot().checkpoint_id)}
    assert taken.isdisjoint(ours)
    assert taken.issuperset(theirs)


@pytest.mark.parametrize("way", ["resume", "roll_back"])
@pytest.mark.parametrize("count", range(1, 11))
def test_a_restore_that_was_cut_off_is_finished_or_rolled_back(directory, root, monkeypatch, count, way):
    first = directory.snapshot()
    wreck(root)
    directory.snapshot()
    wrecked = on_disk(root)
    with monkeypatch.context() as patched:
        dies_after(patched, count)
        with pytest.raises(Dying):
            directory.restore(first)
    with pytest.raises(RestoreInterruptedError):
        directory.restore(first)
    with pytest.raises(RestoreInterruptedError):
        run_inline(directory.restoring.undo(RestoreOptions()))
    run_inline(getattr(directory.restoring, way)())
    assert on_disk(root) == (FIRST if way == "resume" else wrecked)
    with pytest.raises(CheckpointNotFoundError):
        run_inline(directory.restoring.resume())
    if way == "resume":
        run_inline(directory.restoring.undo(RestoreOptions()))
        assert on_disk(root) == wrecked


@pytest.mark.parametrize("way", ["resume", "roll_back"])
def test_what_the_user_did_after_the_crash_is_kept(directory, root, monkeypatch, way):
    first = directory.snapshot()
    wreck(root)
    directory.snapshot()
    with monkeypatch.context() as patched:
        dies_after(patched, 5)
        with pytest.raises(Dying):
            directory.restore(first)
    (root / "edit.txt").write_bytes(b"by hand")
    (root / "unrelated").write_bytes(b"by hand")
    report = run_inline(getattr(directory.restoring, way)())
    assert (root / "edit.txt").read_bytes() == b"by hand"
    assert (root / "unrelated").read_bytes() == b"by hand"
    assert b"edit.txt" in [one.path for one in report.left]


def test_what_changes_while_it_runs_is_not_overwritten_and_the_rest_is_put_back(directory, root):
    first = directory.snapshot()
    wreck(root)
    directory.snapshot()
    wrecked = on_disk(root)
    directory.on_look = lambda: (root / "edit.txt").write_bytes(b"at this very moment")
    with pytest.raises(WorkspaceChangedError, match="while the restore ran") as refused:
        directory.restore(first)
    assert refused.value.paths == (b"edit.txt",)
    assert on_disk(root) == wrecked | {b"edit.txt": ("file", 0o600, b"at this very moment")}


def test_forced_it_is_tried_again_with_a_safety_snapshot_of_what_changed(directory, root):
    first = directory.snapshot()
    wreck(root)
    directory.snapshot()

    def once() -> None:
        directory.on_look = lambda: None
        (root / "edit.txt").write_bytes(b"at this very moment")

    directory.on_look = once
    directory.restore(first, force=True)
    assert on_disk(root) == FIRST
    run_inline(directory.restoring.undo(RestoreOptions()))
    assert (root / "edit.txt").read_bytes() == b"at this very moment"


def test_an_error_of_the_disk_puts_everything_back(directory, root, monkeypatch):
    from holdfast.errors import StoreError

    first = directory.snapshot()
    wreck(root)
    directory.snapshot()
    wrecked = on_disk(root)
    put_file = apply.Applier.put_file
    failed = []

    def full(self, action, data):
        if action.path == b"swap/inside" and not failed:
            failed.append(action.path)
            raise OSError(28, "No space left on device")
        put_file(self, action, data)

    monkeypatch.setattr(apply.Applier, "put_file", full)
    with pytest.raises(StoreError, match=r"No space left.*put back"):
        directory.restore(first)
    assert on_disk(root) == wrecked
    directory.restore(first)
    assert on_disk(root) == FIRST


def test_portions_are_small_and_in_order():
    from restore_trees import changes, entries

    from holdfast.model.file_restore_plan import make_plan

    tree: Tree = {f"f{n:04}".encode(): ("file", 0o644, bytes(9000)) for n in range(1000)}
    plan = make_plan(changes({}, entries(tree)))
    portions = list(execute.portions(plan.actions))
    assert [action for portion in portions for action in portion] == list(plan.actions)
    assert max(len(portion) for portion in portions) <= execute.PORTION_ACTIONS
    assert all(sum(action.after.size for action in portion) <= execute.PORTION_BYTES for portion in portions)
