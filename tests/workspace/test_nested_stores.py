"""The store of another workspace below the directory is not part of a snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
from trees import on_disk, remove, write

from holdfast import SyncClient

EVERYTHING = {"gitignore": False, "default_excludes": False, "include_git": True}


def opened(kind: str, root: Path) -> SyncClient:
    if kind == "files":
        return SyncClient.files(root / "sub/.holdfast/store")
    return SyncClient.sqlite(root / "sub/.holdfast" / ("store.db" if kind == "sqlite" else "agent.db"))


@pytest.fixture(params=["sqlite", "another name", "files"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_what_was_saved_in_it_since_stays_when_the_files_around_it_go_back(
    quick: SyncClient, root: Path, kind: str
) -> None:
    with opened(kind, root) as inner:
        inner.save("a", session_id="s", execution_state={"n": 1})
    write(root, b"sub/f", b"1")
    workspace = quick.workspace(root, **EVERYTHING)
    first = workspace.snapshot()
    assert [(one.path, one.rule) for one in first.snapshot.excluded] == [(b"sub/.holdfast", "another store")]
    with opened(kind, root) as inner:
        inner.save("a", session_id="s", execution_state={"n": 2})
    write(root, b"sub/f", b"2")
    workspace.snapshot()

    workspace.restore(first.checkpoint_id)

    assert (root / "sub/f").read_bytes() == b"1"
    with opened(kind, root) as inner:
        assert inner.latest(session_id="s").execution_state == {"n": 2}
        assert inner.verify().ok


@pytest.mark.parametrize("watch", [False, True])
def test_one_that_comes_and_goes_is_noticed(quick: SyncClient, root: Path, kind: str, watch: bool) -> None:
    write(root, b"sub/.holdfast/notes", b"no store yet\n")
    workspace = quick.workspace(root, watch=watch, **EVERYTHING)

    def kept() -> set[bytes]:
        return {entry.path for entry in workspace.entries(workspace.snapshot().checkpoint_id)}

    assert kept() == {b"sub", b"sub/.holdfast", b"sub/.holdfast/notes"}
    opened(kind, root).close()
    assert kept() == {b"sub"}
    for path in sorted(on_disk(root)):
        if path.startswith(b"sub/.holdfast/") and not path.endswith((b"/.gitignore", b"/notes")):
            remove(root, path)
    assert kept() == {b"sub", *(path for path in on_disk(root) if path.startswith(b"sub/.holdfast"))}
    workspace.close()


def test_what_is_left_of_one_is_not_deleted_by_going_back_to_when_it_was_there(quick: SyncClient, root: Path) -> None:
    opened("sqlite", root).close()
    write(root, b"sub/.holdfast/notes", b"beside the store\n")
    workspace = quick.workspace(root, **EVERYTHING)
    first = workspace.snapshot().checkpoint_id
    remove(root, b"sub/.holdfast/store.db")
    workspace.snapshot()

    workspace.restore(first)

    assert (root / "sub/.holdfast/notes").exists()
