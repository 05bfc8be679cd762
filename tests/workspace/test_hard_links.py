"""Files of several names in a watched directory: the kernel tells of an edit by one name, the
snapshot has it by all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from stores import Store, python
from trees import in_snapshot, note_entered, on_disk, remove, write

from holdfast import SyncClient

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
    entered = note_entered(monkeypatch)
    assert workspace.snapshot().changed == 0
    assert entered == []
    edit(root, b"templates/ignore", b"*.tmp\n")
    report = workspace.snapshot()
    kept = {entry.path for entry in workspace.entries(report.checkpoint_id) if entry.path.startswith(b"d/")}
    assert kept == {b"d/.gitignore", b"d/run.log"}
    workspace.close()


def link_outside(root: Path, name: str) -> Path:
    """Another name of a file, outside the directory: nothing in it tells of that, nor of what is done by it."""
    outside = root.parent / f"outside {name}"
    os.link(root / name, outside)
    return outside


@pytest.mark.parametrize("session", [None, "another"])
@pytest.mark.parametrize("plain_save", [False, True])
def test_what_a_later_look_has_found_is_not_taken_back_by_a_watch(
    quick: SyncClient, root: Path, session: str | None, plain_save: bool
) -> None:
    write(root, b"f", b"1")
    write(root, b"g", b"1")
    watched, plain = quick.workspace(root, watch=True), quick.workspace(root)
    watched.snapshot()
    outside = link_outside(root, "f")
    outside.write_bytes(b"2, by its other name")
    assert plain.read(plain.snapshot(session_id=session).checkpoint_id, b"f") == b"2, by its other name"
    if plain_save:
        quick.save("a", session_id=watched.session_id, execution_state={})
    write(root, b"g", b"2")
    assert [change.path for change in watched.status()] == [b"f", b"g"]
    report = watched.snapshot()
    assert in_snapshot(watched, report.checkpoint_id) == on_disk(root)
    outside.write_bytes(b"3: it is known to have several names now")
    assert in_snapshot(watched, watched.snapshot().checkpoint_id) == on_disk(root)
    watched.close()


def test_nor_by_hints(quick: SyncClient, root: Path) -> None:
    write(root, b"f", b"1")
    write(root, b"g", b"1")
    hinted, plain = quick.workspace(root), quick.workspace(root)
    hinted.snapshot()
    write(root, b"f", b"2, which no hint names")
    plain.snapshot()
    write(root, b"g", b"2")
    report = hinted.snapshot(hints=["g"])
    assert in_snapshot(hinted, report.checkpoint_id) == on_disk(root)


@pytest.mark.parametrize("session", ["", "another"])
def test_nor_if_another_process_has_looked(disk_store: Store, root: Path, session: str) -> None:
    write(root, b"f", b"1")
    write(root, b"g", b"1")
    with disk_store.client() as client:
        watched = client.workspace(root, watch=True)
        watched.snapshot()
        link_outside(root, "f").write_bytes(b"2, by its other name")
        python(
            """
            import sys
            from holdfast import SyncClient
            with SyncClient.open(sys.argv[1]) as client:
                client.workspace(sys.argv[2]).snapshot(session_id=sys.argv[3] or None)
            """,
            disk_store.url,
            str(root),
            session,
        )
        write(root, b"g", b"2")
        assert in_snapshot(watched, watched.snapshot().checkpoint_id) == on_disk(root)
        watched.close()


def test_nor_if_another_client_has_looked_at_a_store_without_files(memory_store: Store, root: Path) -> None:
    """The checkpoints of the session tell, though the last of them carries no snapshot."""
    write(root, b"f", b"1")
    write(root, b"g", b"1")
    watched = memory_store.client().workspace(root, watch=True)
    watched.snapshot()
    link_outside(root, "f").write_bytes(b"2, by its other name")
    other = memory_store.client()
    other.workspace(root).snapshot()
    other.save("a", session_id=watched.session_id, execution_state={})
    write(root, b"g", b"2")
    assert in_snapshot(watched, watched.snapshot().checkpoint_id) == on_disk(root)
    watched.close()


def test_a_watch_that_is_not_overtaken_looks_at_nothing(quick: SyncClient, root: Path, monkeypatch) -> None:
    for number in range(5):
        write(root, b"d%d/f" % number, b"1")
    watched = quick.workspace(root, watch=True)
    watched.snapshot()
    entered = note_entered(monkeypatch)
    for number in range(3):
        write(root, b"d1/f", b"%d" % number)
        assert watched.snapshot(session_id=f"s{number}").changed == 1
        quick.save("a", session_id=f"s{number}", execution_state={})
    assert watched.snapshot(session_id="s0").changed == 0
    assert entered == []
    watched.close()
