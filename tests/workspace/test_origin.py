"""The origin of a snapshot: files of another directory replace nothing here unless forced."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from stores import Store
from trees import on_disk, write

from holdfast import SyncClient, UsageError
from holdfast.workspace.sync import SyncWorkspace


@pytest.fixture
def other(tmp_path: Path) -> Path:
    made = tmp_path / "other"
    made.mkdir()
    write(made, b"b1", b"1")
    return made


def refused(workspace: SyncWorkspace, target: object, **how: object) -> None:
    before = on_disk(workspace.path)
    with pytest.raises(UsageError, match=r"these are the files of .*any_directory=True"):
        workspace.restore(target, **how)  # type: ignore[arg-type]  # these are the arguments of a restore
    assert on_disk(workspace.path) == before


def test_the_files_of_another_directory_are_not_restored_here(client: SyncClient, root: Path, other: Path) -> None:
    write(root, b"a", b"1")
    taken = client.workspace(root).snapshot()
    saved = client.save("agent", session_id="s", workspace=root)
    after = client.save("agent", session_id="s")  # whose files are those of the one before it
    workspace = client.workspace(other)
    workspace.snapshot()
    for target in (taken.checkpoint_id, taken.snapshot, saved, after, client.snapshot_of(saved)):
        refused(workspace, target)
        refused(workspace, target, force=True)
        refused(workspace, target, dry_run=True)
    with pytest.raises(UsageError, match="these are the files of"):
        client.rollback("s", saved, workspace=workspace)
    workspace.restore(saved, any_directory=True)
    assert on_disk(other) == on_disk(root)
    workspace.undo()
    assert os.listdir(other) == ["b1"]


def test_two_directories_of_one_session_stay_apart(quick: SyncClient, root: Path, other: Path) -> None:
    write(root, b"a", b"1")
    first = quick.save("agent", session_id="s", workspace=root)
    second = quick.save("agent", session_id="s", workspace=other)
    refused(quick.workspace(root), second)
    refused(quick.workspace(other), first)
    assert quick.workspace(root).restore(first).actions == ()


def test_a_directory_that_was_moved_is_the_same(client: SyncClient, root: Path, other: Path) -> None:
    write(root, b"a", b"1")
    taken = client.workspace(root).snapshot().checkpoint_id
    moved = root.rename(root.with_name("moved"))
    root.mkdir()  # another one is in its place since
    write(moved, b"a", b"2")
    client.workspace(moved).snapshot()
    client.workspace(moved).restore(taken)
    assert (moved / "a").read_bytes() == b"1"
    refused(client.workspace(other), taken)


def test_what_was_copied_from_elsewhere_can_be_restored(client: SyncClient, root: Path, other: Path) -> None:
    """On another machine nothing is where the snapshot was taken."""
    write(root, b"a", b"1")
    taken = client.workspace(root).snapshot().checkpoint_id
    shutil.rmtree(root)
    workspace = client.workspace(other)
    workspace.snapshot()
    workspace.restore(taken)
    assert os.listdir(other) == ["a"]


@pytest.mark.parametrize("store", ["project/.holdfast/store.db", "stores/shared.db"])
def test_what_was_copied_together_with_the_store_belongs_to_the_copy(tmp_path: Path, store: str) -> None:
    for name in ("project", "other"):
        write(tmp_path, b"first/%b/a" % name.encode(), b"1")
    with SyncClient.sqlite(tmp_path / "first" / store) as client:
        taken = client.workspace(tmp_path / "first/project").snapshot().checkpoint_id
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    write(tmp_path, b"second/project/a", b"2")
    with SyncClient.sqlite(tmp_path / "second" / store) as client:
        workspace = client.workspace(tmp_path / "second/project")
        workspace.snapshot()
        workspace.restore(taken)
        assert (tmp_path / "second/project/a").read_bytes() == b"1"
        refused(client.workspace(tmp_path / "second/other"), taken)


def test_an_empty_directory_takes_the_files_of_any(sqlite_store: Store, root: Path, tmp_path: Path) -> None:
    client = sqlite_store.client()
    write(root, b"a", b"1")
    taken = client.workspace(root).snapshot()
    for name, target in (("first", taken.checkpoint_id), ("second", taken.snapshot)):
        (tmp_path / name / ".holdfast").mkdir(parents=True)
        client.workspace(tmp_path / name).restore(target)
        assert (tmp_path / name / "a").read_bytes() == b"1"


def test_forks_go_back_to_what_they_came_from_and_the_other_way(client: SyncClient, root: Path, tmp_path: Path) -> None:
    write(root, b"a", b"1")
    first = client.save("agent", session_id="s", workspace=root)
    write(root, b"a", b"2")
    point = client.save("agent", session_id="s", workspace=root)
    bare = client.save("agent", session_id="s")  # without a snapshot of its own
    forked = client.workspace(root).fork(point, tmp_path / "fork", session_id="fork")
    beside = client.fork(bare, "beside", workspace=tmp_path / "beside")
    again = client.workspace(forked.directory).fork(str(forked.checkpoint_id), tmp_path / "again", session_id="again")
    ends = []
    for session, directory in (("fork", forked.directory), ("beside", beside.directory), ("again", again.directory)):
        assert directory is not None
        write(directory, b"a", session.encode())
        ends.append(client.save("agent", session_id=session, workspace=directory))
        for target, content in (
            (first, b"1"), (point, b"2"), (bare, b"2"), (client.timeline(session_id=session)[-1].checkpoint_id, b"2"),
            (ends[-1], session.encode())
        ):  # fmt: skip
            client.workspace(directory).restore(target, force=True)
            assert (directory / "a").read_bytes() == content
    client.adopt("fork", "s")  # the state alone: its files are in the other directory
    for target in (*ends, client.latest(session_id="s").checkpoint_id, first):
        client.workspace(root).restore(target, force=True)
    assert (root / "a").read_bytes() == b"1"
    unrelated = tmp_path / "unrelated"
    unrelated.mkdir()
    write(unrelated, b"c", b"1")
    refused(client.workspace(unrelated), ends[0])


def test_checkpoints_that_do_not_say_it_are_restored_as_before(
    quick: SyncClient, root: Path, other: Path, monkeypatch
) -> None:
    from holdfast.operations import new_checkpoint

    fields_of = new_checkpoint.header_fields
    older = lambda *given: {name: one for name, one in fields_of(*given).items() if name != "dir"}  # noqa: E731 - short
    write(root, b"a", b"1")
    monkeypatch.setattr("holdfast.operations.save.header_fields", older)
    taken = quick.workspace(root).snapshot()
    assert quick.get(taken.checkpoint_id).workspace is not None
    assert quick.workspace(other).snapshot_at(taken.checkpoint_id).home is None
    quick.workspace(other).snapshot()
    quick.workspace(other).restore(taken.checkpoint_id)
    assert os.listdir(other) == ["a"]


def test_a_repeated_save_is_the_same_wherever_the_directory_was_moved(client: SyncClient, root: Path) -> None:
    write(root, b"a", b"1")
    saved = client.save("agent", session_id="s", workspace=root)
    moved = root.rename(root.with_name("moved"))
    again = client.save("agent", session_id="s", workspace=moved, checkpoint_id=saved)
    assert again == saved
