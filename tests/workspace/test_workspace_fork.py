"""Forks of directories: exact, independent of each other, and brought back."""

from __future__ import annotations

import errno
import fcntl
import filecmp
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from restore_trees import on_disk
from stores import Store, python
from test_restore_fidelity import make_project

from holdfast import SyncClient
from holdfast.errors import (
    CheckpointNotFoundError,
    ConflictError,
    LeaseHeldError,
    StoreError,
    UsageError,
    WorkspaceChangedError,
)
from holdfast.model.snapshot import SnapshotReport
from holdfast.workspace import reflink
from holdfast.workspace.restore.directory import DirectoryState, SeenFiles
from holdfast.workspace.sync import SyncWorkspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


def settled_snapshot(workspace: SyncWorkspace, path: bytes) -> SnapshotReport:
    """A snapshot of files that were written long enough before it: those of the last moments might change again without
    their times changing, and are not taken for known."""
    deadline = time.monotonic() + 240
    while True:
        taken = workspace.snapshot()
        if SeenFiles(workspace._opened.taker.load_cache().directories).get(path) is not None:
            return taken
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("way", ["as the file system can", "copy_file_range", "from the store"])
def test_a_fork_is_the_same_directory_whichever_way_it_is_made(quick: SyncClient, root, tmp_path, monkeypatch, way):
    def can_not(*_given: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    make_project(root)
    workspace = quick.workspace(root)
    taken = settled_snapshot(workspace, b"binary")
    if way != "as the file system can":
        monkeypatch.setattr(reflink, "_clone_file", lambda *_given: False)
    if way == "from the store":
        monkeypatch.setattr(os, "copy_file_range", can_not)
    forked = workspace.fork(taken.checkpoint_id, tmp_path / "fork")
    assert on_disk(forked.directory) == on_disk(root)
    assert (forked.copied > 0) is (way != "from the store") or way == "as the file system can"
    assert quick.workspace(forked.directory).snapshot().snapshot.reference == taken.snapshot.reference
    assert sorted(os.listdir(tmp_path)) == ["fork", "project"]


def test_what_a_fork_left_that_was_killed_is_swept_by_the_next_one_to_its_place(quick: SyncClient, root, tmp_path):
    (root / "a").write_text("1")
    taken = quick.workspace(root).snapshot()
    left, at_work, other = (
        tmp_path / name for name in (".fork.holdfast-0a", ".fork.holdfast-0b", ".forks.holdfast-0c")
    )
    for one in (left, at_work, other):
        one.mkdir()
        (one / "a").write_text("1")
    filling = os.open(at_work, os.O_RDONLY)
    try:
        fcntl.flock(filling, fcntl.LOCK_EX)
        quick.workspace(root).fork(taken.checkpoint_id, tmp_path / "fork")
    finally:
        os.close(filling)
    assert sorted(os.listdir(tmp_path)) == [".fork.holdfast-0b", ".forks.holdfast-0c", "fork", "project"]


@pytest.mark.parametrize("way", ["copy_file_range", "from the store"])
def test_a_fork_keeps_holes(quick: SyncClient, root, tmp_path, monkeypatch, way):
    with (root / "image").open("wb") as image:
        image.truncate(32 * 1024 * 1024)
        for place in (0, 12_000_000, 25_000_000):
            image.seek(place)
            image.write(b"data" * 1000)
    taken_up = (root / "image").stat().st_blocks
    if taken_up > 10_000:
        pytest.skip("this file system has no holes")
    workspace = quick.workspace(root)
    taken = settled_snapshot(workspace, b"image")
    monkeypatch.setattr(reflink, "_clone_file", lambda *_given: False)
    if way == "from the store":
        monkeypatch.delattr(os, "copy_file_range")
    forked = workspace.fork(taken.checkpoint_id, tmp_path / "fork")
    assert forked.copied == (way == "copy_file_range")
    assert filecmp.cmp(forked.directory / "image", root / "image", shallow=False)
    assert (forked.directory / "image").stat().st_blocks < 10_000  # of 512 bytes


def test_what_has_changed_here_since_comes_from_the_store(quick: SyncClient, root, tmp_path):
    workspace = quick.workspace(root)
    (root / "same").write_text("same")
    (root / "edited").write_text("then")
    (root / "gone").write_text("then")
    taken = workspace.snapshot()
    expected = on_disk(root)
    (root / "edited").write_text("now!")  # of the same size
    (root / "gone").unlink()
    forked = workspace.fork(taken.checkpoint_id, tmp_path / "fork")
    assert on_disk(forked.directory) == expected
    assert (root / "edited").read_text() == "now!"


def test_a_fork_names_what_no_snapshot_has_and_what_stays_done(quick: SyncClient, root, tmp_path):
    (root / "notes").write_text("one")
    with quick.run("s", workspace=root) as run:
        before = run.save("before")
        run.effect("pay", lambda: "receipt")
    workspace = quick.workspace(root)
    assert workspace.fork(before, tmp_path / "first").files_changed == ()
    (root / "notes").write_text("by hand")
    (root / "mine").write_text("in no snapshot")
    forked = workspace.fork(before, tmp_path / "second")
    assert forked.files_changed == (b"mine", b"notes")
    assert (forked.directory / "notes").read_text() == "one"
    assert forked.report is not None
    assert [one.tool for one in forked.report.effects] == ["pay"]


def test_forks_are_independent(quick: SyncClient, root, tmp_path):
    workspace = quick.workspace(root)
    (root / "f").write_text("shared")
    point = quick.save("a", execution_state={"n": 0}, session_id="s", workspace=workspace)
    forks = [workspace.fork(point, tmp_path / f"fork-{n}", session_id=f"try-{n}") for n in range(3)]
    for n, forked in enumerate(forks):
        with (forked.directory / "f").open("a") as file:  # in place: a hard link would show it to all
            file.write(f", changed by {n}")
        quick.save("a", execution_state={"n": n}, session_id=forked.session_id, workspace=forked.directory)
    assert [(forked.directory / "f").read_text() for forked in forks] == [f"shared, changed by {n}" for n in range(3)]
    assert (root / "f").read_text() == "shared"
    assert quick.latest(session_id="s").execution_state == {"n": 0}
    assert [quick.latest(session_id=one.session_id).execution_state for one in forks] == [{"n": n} for n in range(3)]


def test_a_fork_is_adopted_as_the_next_checkpoint_of_its_parent(client: SyncClient, tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    workspace = client.workspace(root)
    (root / "f").write_text("one")
    (root / "removed").write_text("x")
    point = client.save("a", execution_state={"plan": "first"}, session_id="s", workspace=workspace)
    forked = workspace.fork(point, tmp_path / "fork")
    (forked.directory / "f").write_text("better")
    (forked.directory / "removed").unlink()
    (forked.directory / "made").write_text("new")
    client.save("a", execution_state={"plan": "better"}, session_id=forked.session_id, workspace=forked.directory)
    (forked.directory / "made").write_text("newer, and not yet in a checkpoint")
    before = on_disk(root)
    report = workspace.adopt(forked)
    assert on_disk(root) == on_disk(forked.directory)
    head = client.latest(session_id="s")
    assert (head.checkpoint_id, head.parent_id) == (report.checkpoint_id, point)
    assert head.execution_state == {"plan": "better"}
    assert head.metadata["adopted_from"] == report.fork_id
    assert workspace.plan(report.checkpoint_id).actions == ()
    workspace.undo()
    assert on_disk(root) == before


def test_adopting_is_refused_for_what_has_changed_in_the_parent(quick: SyncClient, root, tmp_path):
    workspace = quick.workspace(root)
    (root / "f").write_text("one")
    point = quick.save("a", session_id="s", workspace=workspace)
    forked = workspace.fork(point, tmp_path / "fork")
    (forked.directory / "f").write_text("the fork's")
    (root / "f").write_text("by hand")
    with pytest.raises(WorkspaceChangedError):
        workspace.adopt(forked)
    assert (root / "f").read_text() == "by hand"
    assert quick.latest(session_id="s").checkpoint_id == point
    workspace.adopt(forked, force=True)
    assert (root / "f").read_text() == "the fork's"


def test_what_the_parent_has_saved_since_the_fork_was_made_counts_as_changed(client: SyncClient, tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    workspace = client.workspace(root)
    (root / "f").write_text("one")
    (root / "same").write_text("one")
    point = client.save("a", session_id="s", workspace=workspace)
    forked = workspace.fork(point, tmp_path / "fork")
    (forked.directory / "f").write_text("the fork's")
    (forked.directory / "same").write_text("the fork's")
    (root / "f").write_text("the parent's")
    (root / "g").write_text("the parent's")
    later = client.save("a", session_id="s", workspace=workspace)
    before = on_disk(root)
    with pytest.raises(WorkspaceChangedError, match="2 paths have changed since the fork was made") as refused:
        workspace.adopt(forked)
    assert refused.value.paths == (b"f", b"g")
    assert on_disk(root) == before
    assert client.latest(session_id="s").checkpoint_id == later
    workspace.adopt(forked, keep="user")
    assert {name: (root / name).read_text() for name in os.listdir(root)} == {
        "f": "the parent's", "g": "the parent's", "same": "the fork's"
    }  # fmt: skip
    with pytest.raises(WorkspaceChangedError):
        workspace.adopt(forked)  # what was kept is still the parent's own
    workspace.adopt(forked, force=True)
    assert on_disk(root) == on_disk(forked.directory)


def test_a_fork_can_be_adopted_again_and_again(client: SyncClient, tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    workspace = client.workspace(root)
    (root / "f").write_text("one")
    point = client.save("a", session_id="s", workspace=workspace)
    (root / "f").write_text("gone on before there was a fork")
    client.save("a", session_id="s", workspace=workspace)
    forked = workspace.fork(point, tmp_path / "fork")
    for text in ("two", "three", "four"):
        (forked.directory / "f").write_text(text)
        workspace.adopt(forked)
        assert (root / "f").read_text() == text
        client.save("a", session_id="s", workspace=workspace)


@pytest.mark.parametrize("at", ["before the state", "after the state"])
@pytest.mark.parametrize("way", ["resume", "roll_back"])
def test_an_adoption_that_was_cut_off_is_finished_or_rolled_back_files_and_state(
    sqlite_store: Store, root, tmp_path, monkeypatch, way, at
):
    class Died(BaseException):
        pass

    async def dying(self: DirectoryState, *given: object, dry_run: bool = False) -> None:
        if at == "after the state" or dry_run:
            await adopt(self, *given, dry_run=dry_run)
        if not dry_run:
            raise Died

    adopt = DirectoryState.adopt
    with sqlite_store.client() as client:
        workspace = client.workspace(root)
        (root / "f").write_text("one")
        point = client.save("a", execution_state={"n": 1}, session_id="s", workspace=workspace)
        forked = workspace.fork(point, tmp_path / "fork")
        (forked.directory / "f").write_text("the fork's")
        client.save("a", execution_state={"n": 2}, session_id=forked.session_id, workspace=forked.directory)
        with monkeypatch.context() as patched:
            patched.setattr(DirectoryState, "adopt", dying)
            with pytest.raises(Died):
                workspace.adopt(forked)
    with sqlite_store.client() as client:  # who comes next
        workspace = client.workspace(root)
        assert workspace.interrupted() is not None
        getattr(workspace, way)()
        assert workspace.interrupted() is None
        adopted = client.latest(session_id="s")
        found = (root / "f").read_text(), adopted.execution_state
        assert found == (("the fork's", {"n": 2}) if way == "resume" else ("one", {"n": 1}))
        if way == "resume":
            assert adopted.parent_id == point
            assert adopted.metadata["adopted_session"] == forked.session_id
            assert [one.kind for one in client.operations()] == ["adopt", "fork"]
            client.undo()
            assert ((root / "f").read_text(), client.latest(session_id="s").checkpoint_id) == ("one", point)


def test_an_adoption_that_the_session_refuses_leaves_the_files_alone(quick: SyncClient, root, tmp_path):
    workspace = quick.workspace(root)
    (root / "f").write_text("one")
    point = quick.save("a", session_id="s", workspace=workspace)
    forked = workspace.fork(point, tmp_path / "fork")
    (forked.directory / "f").write_text("the fork's")
    with quick.lease("s"), pytest.raises(LeaseHeldError):
        workspace.adopt(forked)
    assert (root / "f").read_text() == "one"
    assert workspace.interrupted() is None


def test_a_fork_needs_a_place_of_its_own(quick: SyncClient, root, tmp_path):
    workspace = quick.workspace(root)
    (root / "f").write_text("x")
    point = workspace.snapshot().checkpoint_id
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "theirs").write_text("x")
    with pytest.raises(UsageError, match="there already"):
        workspace.fork(point, taken)
    with pytest.raises(UsageError, match="within the workspace"):
        workspace.fork(point, root / "fork")
    (tmp_path / "link").symlink_to(taken)
    with pytest.raises(UsageError, match="there already"):
        workspace.fork(point, tmp_path / "link")
    (tmp_path / "empty").mkdir()
    assert workspace.fork(point, tmp_path / "empty").paths == 1
    assert workspace.fork(point, root / ".holdfast" / "forks" / "one").paths == 1
    assert (taken / "theirs").read_text() == "x"


def test_a_fork_that_fails_leaves_nothing(quick: SyncClient, root, tmp_path):
    workspace = quick.workspace(root)
    (root / "f").write_text("x")
    point = quick.save("a", session_id="s", workspace=workspace)
    with pytest.raises(ConflictError):
        workspace.fork(point, tmp_path / "fork", session_id="s")  # that session is there
    assert os.listdir(tmp_path) == ["project"]
    with pytest.raises(CheckpointNotFoundError):
        workspace.adopt(root, "no such session")


def test_a_fork_that_fails_leaves_nothing_of_directories_that_nobody_may_write_to():
    code = """
        import errno
        import os
        import sys
        from pathlib import Path

        from holdfast import SyncClient
        from holdfast.errors import ConflictError, StoreError
        from holdfast.workspace.restore import apply

        def cycle(above):
            above.mkdir()
            root = above / "root"
            (root / "d" / "e").mkdir(parents=True)
            (root / "d" / "e" / "f").write_bytes(b"one")
            (root / "d" / "link").symlink_to("/")
            (root / "d").chmod(0o500)
            (root / "d" / "e").chmod(0o500)
            with SyncClient.memory() as client:
                workspace = client.workspace(root)
                point = client.save("a", session_id="s", workspace=workspace)
                for fork in (
                    lambda: workspace.fork(point, above / "fork", session_id="s"),
                    lambda: client.fork(point, "s", workspace=above / "fork"),
                ):
                    try:
                        fork()
                    except ConflictError as error:
                        assert "exists already" in str(error)
                    assert os.listdir(above) == ["root"], os.listdir(above)
                settle = apply.Applier.settle

                def full(self):
                    settle(self)
                    raise OSError(errno.ENOSPC, "No space left on device")

                apply.Applier.settle = full
                try:
                    workspace.fork(point, above / "fork")
                except StoreError as error:
                    assert "nothing of it is left" in str(error)
                apply.Applier.settle = settle
                assert os.listdir(above) == ["root"], os.listdir(above)
                assert workspace.fork(point, above / "fork").paths == 4

        cycle(Path(sys.argv[1], "first"))  # imports everything: the other user may not read it
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        cycle(Path(sys.argv[1], "second"))
        print("held")
    """
    with tempfile.TemporaryDirectory() as above:  # pytest's own directories are closed to others
        os.chmod(above, 0o777)
        assert python(code, above).stdout == "held\n"


def test_what_is_left_of_a_fork_that_can_not_be_taken_away_is_said(quick: SyncClient, root, tmp_path, monkeypatch):
    def refused(*_given: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    workspace = quick.workspace(root)
    (root / "f").write_text("x")
    point = quick.save("a", session_id="s", workspace=workspace)
    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(ConflictError, match="exists already") as failed:
        workspace.fork(point, tmp_path / "fork", session_id="s")
    assert "could not be removed" in failed.value.__notes__[0]
    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(StoreError, match=r"what there is of it is left at '.*\.second\.holdfast-"):
        workspace.fork(point, tmp_path / "second")
