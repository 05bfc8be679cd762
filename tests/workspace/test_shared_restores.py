"""Restores of which several processes make the files: as exact, as safe and as whole as those of one."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import odd_filling
import pytest
import sharing_setting
from hypothesis import given
from restore_trees import Tree, changes, entries, on_disk, trees
from sharing_setting import Prompt, empty, fill

from crash.volumes import small_disk
from holdfast import Client
from holdfast.errors import ConflictError, CorruptError, StoreError
from holdfast.model.restore_plan import make_plan
from holdfast.objects import frame
from holdfast.workspace import apply, descriptors, filling, restoring, sharing
from holdfast.workspace.carrying_out import as_needed
from support import Store

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs /proc")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Prompt]]:
    """Small trees are restored by three processes, and nothing of these is left."""
    for module, name, value in sharing_setting.SETTINGS:
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(Prompt, "taken", 0)
    before = children()
    yield Prompt
    assert children() <= before
    assert not [one for one in threading.enumerate() if one.name == "holdfast-worker"]


def children() -> set[str]:
    return {pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    fill(made)
    return made


def test_everything_is_as_it_was_on_every_store(store: Store, root: Path, shared: type[Prompt]) -> None:
    workspace = store.client().workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    empty(root)
    seen: list[tuple[int, int]] = []
    report = workspace.restore(saved, progress=lambda done, of: seen.append((done, of)))
    assert on_disk(root) == before
    assert shared.taken >= 4
    assert seen == sorted(seen)
    assert seen[-1] == (len(report.actions), len(report.actions))
    workspace.undo()
    assert on_disk(root) == {}
    workspace.undo()
    assert on_disk(root) == before


def test_part_of_it_is_new_and_part_is_not(sqlite_store: Store, root: Path, shared: type[Prompt]) -> None:
    workspace = sqlite_store.client().workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    for name in ("d1", "d2", "d3", "private"):
        (root / name).chmod(0o700)
        for path in sorted((root / name).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (root / name).rmdir()
    (root / "d4" / "e1" / "mine").write_text("new")
    (root / "top").write_text("edited")
    workspace.snapshot()
    workspace.restore(saved)
    assert on_disk(root) == before
    assert shared.taken


def test_a_fork_is_filled_by_several_processes(sqlite_store: Store, root: Path, shared: type[Prompt]) -> None:
    workspace = sqlite_store.client().workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    empty(root)
    forked = workspace.fork(saved, root.with_name("fork"))
    assert on_disk(forked.directory) == before
    assert shared.taken


def test_within_an_event_loop(tmp_path: Path, root: Path, shared: type[Prompt]) -> None:
    before = on_disk(root)

    async def go() -> None:
        async with Client.sqlite(tmp_path / "store.db") as client:
            workspace = client.workspace(root)
            saved = (await workspace.snapshot()).checkpoint_id
            empty(root)
            await workspace.restore(saved)

    asyncio.run(go())
    assert on_disk(root) == before
    assert shared.taken


@pytest.mark.parametrize("what", ["dies half way", "confused half way"])
def test_what_a_worker_did_not_finish_is_done_without_it(
    sqlite_store: Store, root: Path, shared: type[Prompt], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    root.with_name("odd").write_text(what)
    monkeypatch.setattr(sharing, "filling", odd_filling)
    workspace = sqlite_store.client().workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    empty(root)
    workspace.restore(saved)
    assert on_disk(root) == before
    assert shared.taken >= 4


def test_where_no_worker_can_be_started_one_process_does_it(
    sqlite_store: Store, root: Path, shared: type[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python3")
    workspace = sqlite_store.client().workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    empty(root)
    workspace.restore(saved)
    assert on_disk(root) == before
    assert not shared.taken


def test_a_disk_that_is_full_for_a_worker_puts_everything_back(
    sqlite_store: Store, root: Path, shared: type[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    root.with_name("odd").write_text("full")
    monkeypatch.setattr(sharing, "filling", odd_filling)
    workspace = sqlite_store.client().workspace(root)
    saved = workspace.snapshot().checkpoint_id
    empty(root)
    (root / "mine").write_text("made since")
    with pytest.raises(StoreError, match=r"No space left on device.*everything was put back"):
        workspace.restore(saved, force=True)
    assert list(on_disk(root)) == [b"mine"]
    assert workspace.interrupted() is None


@pytest.mark.root
def test_a_disk_that_is_full_puts_everything_back(sqlite_store: Store, tmp_path: Path, shared: type[Prompt]) -> None:
    source = tmp_path / "root"
    fill(source, 400)
    workspace = sqlite_store.client().workspace(source)
    saved = workspace.snapshot().checkpoint_id
    with small_disk(tmp_path / "small", nr_inodes=150, size="40m") as small:
        place = small / "root"
        place.mkdir()
        (place / "mine").write_text("was here")
        elsewhere = sqlite_store.client().workspace(place)
        with pytest.raises(StoreError, match=r"No space left on device.*everything was put back"):
            elsewhere.restore(saved, force=True, any_directory=True)
        assert list(on_disk(place)) == [b"mine"]
        assert elsewhere.interrupted() is None


@pytest.mark.parametrize("at", [0, 80, -1])
def test_damage_that_a_worker_meets_leaves_everything_as_it_was(
    sqlite_store: Store, root: Path, shared: type[Prompt], at: int
) -> None:
    workspace = sqlite_store.client().workspace(root)
    saved = workspace.snapshot().checkpoint_id
    files = sorted((one for one in workspace.entries(saved) if one.is_one_blob), key=lambda one: one.path)
    empty(root)
    with sqlite3.connect(sqlite_store.where / "store.db") as database:
        database.execute("UPDATE blob SET data = ? WHERE hash = ?", (b"\x00other", files[at].content))
    database.close()
    with pytest.raises(CorruptError):
        workspace.restore(saved)
    assert on_disk(root) == {}
    assert workspace.interrupted() is None


def test_a_link_that_is_swapped_in_beside_a_worker_is_not_followed(
    sqlite_store: Store, root: Path, shared: type[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = root.with_name("outside")
    outside.mkdir()
    (outside / "theirs").write_text("theirs")
    there = on_disk(outside)
    root.with_name("odd").write_text("swaps")
    monkeypatch.setattr(sharing, "filling", odd_filling)
    workspace = sqlite_store.client().workspace(root)
    saved = workspace.snapshot().checkpoint_id
    empty(root)
    with pytest.raises(StoreError, match="everything was put back"):
        workspace.restore(saved)
    assert on_disk(outside) == there
    assert on_disk(root) == {}


@pytest.mark.parametrize("opening", ["openat2", "name by name"])
@pytest.mark.parametrize("place", [b"link", b"link/below", b"..", b"../outside", b"d/../../outside"])
def test_a_worker_does_not_leave_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opening: str, place: bytes
) -> None:
    if opening == "name by name":
        monkeypatch.setattr(descriptors, "_openat2_works", lambda: False)
    inside, outside = tmp_path / "root", tmp_path / "outside"
    (inside / "d").mkdir(parents=True)
    (outside / "below").mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    root = descriptors.open_root(inside)
    there = on_disk(outside)
    try:
        with pytest.raises(OSError, match=r"."):
            filling.begin(None, [root])(([], [place], [(0, b"file", 0o644, 0, -1)]))
    finally:
        os.close(root)
    assert on_disk(outside) == there
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("what", ["another content", "too long"])
def test_a_worker_writes_nothing_that_is_not_what_was_saved(tmp_path: Path, what: str) -> None:
    root = descriptors.open_root(tmp_path)
    (tmp_path / "d").mkdir()
    hash_, content = filling_hash(b"content")
    stored = frame.raw(content if what == "too long" else b"Content")
    file = (0, b"file", 0o644, len(content) - (what == "too long"), 0)
    try:
        with pytest.raises((CorruptError, ValueError)):
            filling.begin(None, [root])(([(hash_, stored)], [b"d"], [file]))
    finally:
        os.close(root)
    assert list((tmp_path / "d").iterdir()) == []


def filling_hash(content: bytes) -> tuple[bytes, bytes]:
    import hashlib

    return hashlib.sha256(content).digest(), content


def test_who_finishes_a_restore_waits_for_workers_of_a_process_that_died(
    sqlite_store: Store, root: Path, shared: type[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is held is all that is known of them."""
    workspace = sqlite_store.client().workspace(root)
    before = on_disk(root)
    saved = workspace.snapshot().checkpoint_id
    empty(root)
    held: list[int] = []

    class Died(BaseException):
        """Nobody tidies up after it."""

    def settle(self: apply.Applier) -> None:
        name = sharing._name(self.token)
        held.append(os.open(name, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self.root))
        fcntl.flock(held[0], fcntl.LOCK_EX)
        raise Died

    with monkeypatch.context() as dying:
        dying.setattr(apply.Applier, "settle", settle)
        with pytest.raises(Died):
            workspace.restore(saved)
    assert workspace.interrupted() is not None
    files = on_disk(root)
    monkeypatch.setattr(restoring, "LOOKS", 3)
    monkeypatch.setattr(restoring, "PATIENCE", 0.01)
    for finish in (workspace.resume, workspace.roll_back):
        with pytest.raises(ConflictError, match="still write to this directory"):
            finish()
    assert on_disk(root) == files
    os.close(held[0])
    workspace.resume()
    assert on_disk(root) == before


def test_cancelling_ends_the_workers(
    tmp_path: Path, root: Path, shared: type[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of it. What is half done is put back."""
    before = on_disk(root)
    begun = threading.Event()
    give = sharing.Sharing.give

    def noted(self: sharing.Sharing, *given: Any) -> bool:
        begun.set()
        return give(self, *given)

    monkeypatch.setattr(sharing.Sharing, "give", noted)

    async def go() -> None:
        async with Client.sqlite(tmp_path / "store.db") as client:
            workspace = client.workspace(root)
            saved = (await workspace.snapshot()).checkpoint_id
            empty(root)
            task = asyncio.create_task(workspace.restore(saved))
            await asyncio.to_thread(begun.wait, sharing_setting.PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await workspace.interrupted() is None
            assert on_disk(root) == {}
            await workspace.restore(saved)

    asyncio.run(go())
    assert on_disk(root) == before


@given(trees(), trees())
def test_every_directory_is_made_before_what_goes_into_it_and_nothing_is_forgotten(before: Tree, after: Tree) -> None:
    plan = make_plan(changes(entries(before), entries(after)))
    ordered = list(as_needed(plan.actions, 2))
    assert sorted(map(repr, ordered)) == sorted(map(repr, plan.actions))
    made: set[bytes] = {path for path, content in before.items() if content[0] == "dir"}
    for action in ordered:
        above = action.path.rpartition(b"/")[0]
        if action.doing == "create":
            assert not above or above in made
            made |= {action.path} if action.after is not None and action.after.kind == "dir" else set()
    is_removal = [action.doing == "delete" for action in ordered]
    assert is_removal == sorted(is_removal, reverse=True)
