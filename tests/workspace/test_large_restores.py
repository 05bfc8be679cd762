"""Restores of many files, of which some are unpacked while others are made."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from restore_trees import on_disk
from stores import Store
from volumes import small_disk

from holdfast import Client
from holdfast.errors import CorruptError, StoreError
from holdfast.model.file_restore_plan import FileAction
from holdfast.workspace import dirfd
from holdfast.workspace.restore import apply, writeback

pytestmark = pytest.mark.slow

FILES = 700  # three portions, each worth a thread


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    for number in range(FILES):
        file = made / f"d{number % 30}" / f"f{number:04}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((f"line {number} of a file\n" * 150).encode())
        file.chmod(0o600 + number % 0o200)
    (made / "empty").write_bytes(b"")
    (made / "private").mkdir(mode=0o500)
    (made / "shared").mkdir()
    (made / "shared").chmod(0o2775)
    return made


def emptied(root: Path) -> None:
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_everything_comes_back_and_the_thread_is_gone(sqlite_store: Store, root: Path) -> None:
    client = sqlite_store.client()
    workspace = client.workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    emptied(root)
    seen: list[tuple[int, int]] = []
    report = workspace.restore(saved, progress=lambda done, of: seen.append((done, of)))
    assert on_disk(root) == before
    assert seen == sorted(seen)
    assert seen[-1] == (len(report.actions), len(report.actions))
    assert not [one for one in threading.enumerate() if one.name.startswith("holdfast-unpacking")]


def test_everything_comes_back_from_every_store(store: Store, root: Path) -> None:
    workspace = store.client().workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    emptied(root)
    workspace.restore(saved)
    assert on_disk(root) == before
    workspace.undo()
    assert on_disk(root) == {}
    workspace.redo()
    assert on_disk(root) == before


def test_part_of_it_is_new_and_part_is_not(sqlite_store: Store, root: Path) -> None:
    workspace = sqlite_store.client().workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    for name in ("d1", "d2", "d3", "private"):
        shutil.rmtree(root / name)
    (root / "d4" / "mine").write_text("new")
    (root / "empty").write_text("edited")
    workspace.snapshot()
    workspace.restore(saved)
    assert on_disk(root) == before


def test_a_fork_gets_all_files(sqlite_store: Store, root: Path) -> None:
    workspace = sqlite_store.client().workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    emptied(root)
    forked = workspace.fork(saved, root.with_name("fork"))
    assert on_disk(forked.directory) == before


def test_cancelling_in_the_middle_puts_everything_back(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = on_disk(root)
    begun = threading.Event()
    put_file = apply.Applier.put_file

    def noted(self: apply.Applier, action: FileAction, data: bytes) -> None:
        put_file(self, action, data)
        begun.set()

    monkeypatch.setattr(apply.Applier, "put_file", noted)

    async def go() -> None:
        async with Client.sqlite(tmp_path / "store.db") as client:
            workspace = client.workspace(root)
            saved = (await workspace.snapshot()).checkpoint_id
            emptied(root)
            task = asyncio.create_task(workspace.restore(saved))
            await asyncio.to_thread(begun.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await workspace.interrupted() is None
            assert on_disk(root) == {}
            await workspace.restore(saved)

    asyncio.run(go())
    assert on_disk(root) == before


@pytest.mark.root
def test_a_disk_that_is_full_puts_everything_back(sqlite_store: Store, root: Path, tmp_path: Path) -> None:
    saved = sqlite_store.client().workspace(root).snapshot().checkpoint_id
    with small_disk(tmp_path / "small", nr_inodes=150, size="40m") as small:
        place = small / "root"
        place.mkdir()
        (place / "mine").write_text("was here")
        elsewhere = sqlite_store.client().workspace(place)
        with pytest.raises(StoreError, match=r"No space left on device.*everything was put back"):
            elsewhere.restore(saved, force=True, any_directory=True)
        assert list(on_disk(place)) == [b"mine"]
        assert elsewhere.interrupted() is None


@pytest.mark.parametrize("at", [0, FILES // 2, -1])
def test_damage_that_is_met_on_the_way_leaves_everything_as_it_was(sqlite_store: Store, root: Path, at: int) -> None:
    client = sqlite_store.client()
    workspace = client.workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    files = sorted((one for one in workspace.entries(saved) if one.size), key=lambda one: one.path)
    hash_ = files[at].content
    emptied(root)
    (root / "mine").write_text("made since")
    with sqlite3.connect(sqlite_store.where / "store.db") as database:
        [[framed]] = database.execute("SELECT data FROM blob WHERE hash = ?", (hash_,)).fetchall()
        middle = len(framed) // 2
        damaged = framed[:middle] + bytes([framed[middle] ^ 1]) + framed[middle + 1 :]
        database.execute("UPDATE blob SET data = ? WHERE hash = ?", (damaged, hash_))
    with pytest.raises(CorruptError):
        workspace.restore(saved, force=True)
    assert [path.name for path in root.iterdir()] == ["mine"]
    assert (root / "mine").read_text() == "made since"
    with sqlite3.connect(sqlite_store.where / "store.db") as database:
        database.execute("UPDATE blob SET data = ? WHERE hash = ?", (framed, hash_))
    workspace.restore(saved, force=True)
    assert on_disk(root, without=[b"mine"]) == before


def test_what_was_written_goes_to_the_disk_on_the_way_and_at_the_end(
    sqlite_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[str] = []
    sync = dirfd.sync_file_system

    def noted(descriptor: int) -> None:
        thread = threading.current_thread()
        syncs.append(thread.name.partition("_")[0])
        if thread is threading.main_thread():
            assert on_disk(root) == before
        sync(descriptor)

    workspace = sqlite_store.client().workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    emptied(root)
    monkeypatch.setattr(writeback, "ENOUGH", 1_000_000)
    monkeypatch.setattr(dirfd, "sync_file_system", noted)
    workspace.restore(saved)
    assert on_disk(root) == before
    assert syncs[-1] == threading.main_thread().name
    assert {*syncs[:-1]} == {"holdfast-writeback"}
    assert not [one for one in threading.enumerate() if one.name.startswith("holdfast-writeback")]


def test_a_disk_that_fails_on_the_way_puts_everything_back(
    sqlite_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what could not be written the system tells once: it must not be lost that the thread was told."""
    workspace = sqlite_store.client().workspace(root)
    saved = workspace.snapshot().checkpoint_id
    emptied(root)
    sync = dirfd.sync_file_system
    told: list[str] = []

    def failing(descriptor: int) -> None:
        thread = threading.current_thread().name
        if thread.startswith("holdfast-writeback") and not told:
            told.append(thread)
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(writeback, "ENOUGH", 1_000_000)
    monkeypatch.setattr(dirfd, "sync_file_system", failing)
    with pytest.raises(StoreError, match=r"Input/output error.*put back"):
        workspace.restore(saved)
    assert told
    assert on_disk(root) == {}
    assert workspace.interrupted() is None
