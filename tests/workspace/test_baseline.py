"""status and diff: the directory is compared with where it stands, which a restore moves as a snapshot does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from stores import Store

from holdfast import Client, SyncClient, WorkspaceChangedError
from holdfast.workspace.sync import SyncWorkspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / name).write_text(text)


def changed(workspace: SyncWorkspace) -> str:
    found = [f"{one.status} {one.path.decode()}" for one in workspace.status()]
    assert found == [f"{one.status} {one.path.decode()}" for one in workspace.diff()]
    return ", ".join(found)


def two_snapshots(client: SyncClient, root: Path) -> tuple[SyncWorkspace, str]:
    workspace = client.workspace(root)
    put(root, a="one", b="one")
    first = workspace.snapshot("first").checkpoint_id
    put(root, a="two", c="two")
    workspace.snapshot("second")
    return workspace, first


def test_after_a_restore_nothing_has_changed(store: Store, root: Path) -> None:
    workspace, first = two_snapshots(store.client(), root)
    workspace.restore(first)
    assert changed(workspace) == ""
    put(root, a="mine")
    assert changed(workspace) == "M a"
    workspace = store.client().workspace(root)  # another process knows it, too
    assert changed(workspace) == "M a"
    workspace.snapshot("third")
    assert changed(workspace) == ""


def test_a_restore_that_is_refused_leaves_it(store: Store, root: Path) -> None:
    with store.client() as client:
        workspace, first = two_snapshots(client, root)
        put(root, a="mine")
        for _ in range(3):
            with pytest.raises(WorkspaceChangedError):
                workspace.restore(first)
            assert changed(workspace) == "M a"


def test_an_undo_goes_back_to_what_was_before(store: Store, root: Path) -> None:
    with store.client() as client:
        workspace, first = two_snapshots(client, root)
        put(root, b="mine")
        assert changed(workspace) == "M b"
        workspace.restore(first, force=True)
        assert changed(workspace) == ""
        workspace.undo()
        assert changed(workspace) == "M b"
        workspace.redo(force=True)
        assert changed(workspace) == ""
        workspace.undo()
        assert changed(workspace) == "M b"


def test_one_restore_after_another(store: Store, root: Path) -> None:
    with store.client() as client:
        workspace, first = two_snapshots(client, root)
        put(root, a="three")
        third = workspace.snapshot("third").checkpoint_id
        workspace.restore(first)
        workspace.restore(third)
        assert changed(workspace) == ""
        workspace.undo()
        assert changed(workspace) == ""
        put(root, c="mine")
        assert changed(workspace) == "A c"


def test_of_some_paths_the_others_stay_what_they_are_compared_with(store: Store, root: Path) -> None:
    with store.client() as client:
        workspace, first = two_snapshots(client, root)
        put(root, b="mine")
        workspace.restore(first, paths=["a"])
        assert (root / "a").read_text() == "one"
        assert changed(workspace) == "M b"


def test_what_the_user_keeps_is_a_change(store: Store, root: Path) -> None:
    with store.client() as client:
        workspace, first = two_snapshots(client, root)
        put(root, a="mine")
        workspace.restore(first, keep="user")
        assert (root / "a").read_text() == "mine"
        assert changed(workspace) == "M a"


def test_a_rollback_of_a_session_with_its_files(store: Store, root: Path) -> None:
    with store.client() as client:
        put(root, a="one")
        first = client.save("agent", session_id="s", execution_state={"n": 1}, workspace=root)
        put(root, a="two")
        client.save("agent", session_id="s", execution_state={"n": 2}, workspace=root)
        client.rollback("s", first, workspace=root)
        workspace = client.workspace(root)
        assert changed(workspace) == ""
        put(root, a="mine")
        assert changed(workspace) == "M a"


def test_awaited(disk_store: Store, root: Path) -> None:
    async def found() -> list[str]:
        async with Client.open(disk_store.url) as client:
            workspace = client.workspace(root)
            put(root, a="one")
            first = (await workspace.snapshot("first")).checkpoint_id
            put(root, a="two")
            await workspace.snapshot("second")
            await workspace.restore(first)
            put(root, b="mine")
            return [f"{one.status} {one.path.decode()}" for one in await workspace.status()]

    assert asyncio.run(found()) == ["A b"]
