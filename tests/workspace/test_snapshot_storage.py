"""Files of a snapshot in the store: staged, shared, collected, verified, exported, counted."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from stores import Clock, Store
from trees import in_snapshot, on_disk, remove, write

from holdfast import SyncClient
from holdfast.backends.port import Commit
from holdfast.errors import HoldfastError
from holdfast.model.snapshot import WHOLE_BYTES
from holdfast.operations import staging
from holdfast.workspace.snapshot import compress, take

pytestmark = pytest.mark.every_store

DAY = 24 * 3600


@pytest.fixture
def small_parts(monkeypatch) -> None:
    """So small that a directory of some files is written in many parts."""
    for module in (staging, take, compress):
        monkeypatch.setattr(module, "STAGED_BYTES", 4000)


def fill(root: Path, count: int = 60, *, seed: int = 0) -> None:
    for number in range(count):
        write(root, b"d%d/f%d" % (number % 7, number), b"%d %d " % (number, seed) + os.urandom(500))


def test_what_is_written_ahead_is_held_until_the_commit_and_nothing_is_left(
    store: Store, root: Path, small_parts
) -> None:
    fill(root)
    client, recorder = store.recorded()
    workspace = client.workspace(root)
    report = workspace.snapshot()
    staged = [one for one in recorder.commits if one.record is not None and one.blobs and not one.rows]
    assert len(staged) > 5
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)
    assert [session.session_id for session in client.sessions()] == [workspace.session_id]
    found = client.gc()
    assert (found.blobs, found.records) == (0, 0)
    assert client.verify().checked == 1


def test_a_collection_at_any_moment_of_a_snapshot_takes_nothing_of_it(store: Store, root: Path, small_parts) -> None:
    fill(root)
    client, other = store.client(), store.client()
    workspace = client.workspace(root)
    collected = []
    inner = workspace._opened.ctx.backend.inner.commit

    def commit_and_collect(commit: Commit):
        async def both() -> None:
            await inner(commit)
            collected.append(other.gc())

        return both()

    workspace._opened.ctx.backend.inner.commit = commit_and_collect
    report = workspace.snapshot()
    assert len(collected) > 5
    assert client.verify().ok
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)


def test_what_a_snapshot_that_failed_had_written_is_collected(store: Store, root: Path, small_parts) -> None:
    fill(root)
    client = store.client()
    client.save("agent", session_id="s")
    first = client.save("agent", session_id="s")
    client.save("agent", session_id="s")
    with pytest.raises(HoldfastError, match="stands at"):
        client.save("agent", session_id="s", workspace=root, expect_head=first)
    assert client.gc().blobs > 50
    assert client.stats().blob_bytes == 0
    saved = client.save("agent", session_id="s", workspace=root)
    assert in_snapshot(client.workspace(root), saved) == on_disk(root)


def test_what_a_snapshot_that_died_had_written_is_collected_once_its_time_is_over(
    store: Store, root: Path, small_parts
) -> None:
    fill(root)
    client = store.client()
    workspace = client.workspace(root)
    inner = workspace._opened.ctx.backend.inner.commit
    count = 0

    class DiedError(BaseException):
        pass

    def die(commit: Commit):
        nonlocal count
        count += 1
        if count > 5:
            raise DiedError
        return inner(commit)

    workspace._opened.ctx.backend.inner.commit = die
    with pytest.raises(DiedError):
        workspace.snapshot()
    workspace._opened.ctx.backend.inner.commit = inner
    later, clock = store.client(), Clock()
    assert later.gc().blobs == 0
    clock.us = later._ctx.now_us() + (DAY + 60) * 1_000_000
    clock.rules(later)
    assert later.gc().blobs > 10
    assert later.stats().blob_bytes == 0


def test_a_file_is_stored_once_whoever_has_it(store: Store, tmp_path: Path) -> None:
    client = store.client()
    content = os.urandom(50_000)
    for name in ("one", "two"):
        root = tmp_path / name
        write(root, b"a/data", content)
        write(root, b"b/copy", content)
        client.workspace(root).snapshot()
        client.save("agent", session_id=f"s-{name}", workspace=root)
    assert client.stats().blob_bytes < 60_000 * (store.shards or 1)  # once in a shard, where there are shards


def test_a_snapshot_in_another_session_writes_nothing_again(store: Store, root: Path) -> None:
    fill(root)
    client, recorder = store.recorded()
    workspace = client.workspace(root)
    workspace.snapshot()
    recorder.commits.clear()
    saved = client.save("agent", session_id="other", workspace=workspace)
    assert sum(len(commit.blobs) for commit in recorder.commits) == 0
    client.expire(client.timeline(session_id=workspace.session_id)[0].checkpoint_id)
    client.gc()
    assert in_snapshot(workspace, saved) == on_disk(root)
    assert client.verify().ok


def test_what_was_built_upon_is_gone_so_everything_is_stored_again(store: Store, root: Path) -> None:
    fill(root, 10)
    client = store.client()
    workspace = client.workspace(root)
    first = workspace.snapshot().checkpoint_id
    client.expire(first)
    client.gc()
    assert client.stats().blob_bytes == 0
    saved = client.save("agent", session_id="other", workspace=workspace)
    assert in_snapshot(workspace, saved) == on_disk(root)
    assert client.verify().ok


def test_the_base_may_go_between_the_walk_and_the_commit(store: Store, root: Path) -> None:
    fill(root, 10)
    client, other = store.client(), store.client()
    workspace = client.workspace(root)
    base = workspace.snapshot().checkpoint_id
    client.save("agent", session_id=workspace.session_id)  # so that the base is not the head
    (root / "new").write_bytes(b"1")
    inner, gone = workspace._opened.ctx.backend.inner.commit, []

    def expire_first(commit: Commit):
        if not gone:
            gone.append(other.expire(base))
            other.gc()
        return inner(commit)

    workspace._opened.ctx.backend.inner.commit = expire_first
    report = workspace.snapshot()
    assert gone == [True]
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)
    assert client.verify().ok


def test_collection_takes_what_no_live_snapshot_needs(store: Store, root: Path) -> None:
    client = store.client()
    workspace = client.workspace(root)
    write(root, b"old", os.urandom(20_000))
    write(root, b"large", os.urandom(2_000_000))
    first = workspace.snapshot()
    remove(root, b"old")
    with (root / "large").open("r+b") as file:
        file.write(b"changed")
    second = workspace.snapshot()
    client.gc()
    assert workspace.verify(first.checkpoint_id).ok
    client.expire(first.checkpoint_id)
    report = client.gc()
    assert 280_000 < report.bytes_freed < 310_000  # the old file and one chunk
    assert in_snapshot(workspace, second.checkpoint_id) == on_disk(root)
    assert client.gc().blobs == 0


def test_an_expiry_that_is_undone_has_its_files(store: Store, root: Path) -> None:
    client = store.client()
    workspace = client.workspace(root)
    write(root, b"a", b"1")
    first = workspace.snapshot().checkpoint_id
    write(root, b"a", b"2")
    workspace.snapshot()
    client.expire(first)
    client.gc(dry_run=True)
    client.unexpire(first)
    client.gc()
    assert workspace.read(first, "a") == b"1"


def test_retention_by_bytes_counts_files(store: Store, root: Path) -> None:
    client = store.client()
    workspace = client.workspace(root)
    taken = []
    for _ in range(5):
        (root / "data").write_bytes(os.urandom(100_000))
        taken.append(workspace.snapshot().checkpoint_id)
    report = client.retain(max_bytes=250_000, dry_run=False)
    assert report.going == 3
    assert client.stats().blob_bytes < 250_000
    assert workspace.verify(taken[-1]).ok
    assert client.verify().ok


def test_du_counts_files_alone_and_shared(store: Store, root: Path) -> None:
    client = store.client()
    write(root, b"shared", os.urandom(100_000))
    client.save("agent", session_id="one", workspace=root)
    write(root, b"own", os.urandom(30_000))
    client.save("agent", session_id="two", workspace=root)
    usage = {one.session_id: one for one in client.du().sessions}
    assert 100_000 < usage["one"].shared_bytes < 101_000
    assert usage["one"].exclusive_bytes < 2_000
    assert 30_000 < usage["two"].exclusive_bytes < 32_000


def test_a_bundle_carries_files_into_a_store_of_another_kind(store: Store, root: Path, tmp_path: Path) -> None:
    client = store.client()
    workspace = client.workspace(root)
    fill(root, 20)
    write(root, b"large", os.urandom(1_500_000))
    os.symlink("large", root / "link")
    workspace.snapshot()
    write(root, b"d1/f1", b"changed")
    report = workspace.snapshot()
    bundle = tmp_path / "bundle"
    client.export(bundle)
    with SyncClient.memory() as there:
        there.import_(bundle)
        assert there.verify().ok
        copied = there.workspace(root)
        assert in_snapshot(copied, report.checkpoint_id) == on_disk(root)
        assert there.import_(bundle).imported == 0  # again is a no-op
        assert there.gc().blobs == 0
        again = io.BytesIO()
        there.export(again)
        assert again.getvalue() == bundle.read_bytes()


def test_an_import_goes_on_from_what_is_there(store: Store, root: Path, tmp_path: Path) -> None:
    client = store.client()
    fill(root, 20)
    workspace = client.workspace(root)
    workspace.snapshot()
    client.export(tmp_path / "first")
    write(root, b"more", os.urandom(1000))
    last = workspace.snapshot().checkpoint_id
    client.export(tmp_path / "second")
    with SyncClient.memory() as there:
        there.import_(tmp_path / "first")
        there.import_(tmp_path / "second")
        there.gc()
        assert there.verify().ok
        assert in_snapshot(there.workspace(root), last) == on_disk(root)


def test_damage_to_a_file_is_found_and_named(sqlite_store: Store, root: Path) -> None:
    import sqlite3

    client = sqlite_store.client()
    workspace = client.workspace(root)
    fill(root, 5)
    saved = workspace.snapshot().checkpoint_id
    hash_ = workspace.entries(saved)[-1].content
    client.close()
    with sqlite3.connect(sqlite_store.where / "store.db") as database:
        database.execute("DELETE FROM blob WHERE hash = ?", (hash_,))
    again = sqlite_store.client()
    report = again.verify()
    assert not report.ok
    assert report.problems[0].checkpoint_id == saved
    assert "missing" in report.problems[0].message
    assert not again.workspace(root).verify(saved).ok


@pytest.mark.slow  # what an edit costs is told by test_blob_deltas.py, too
def test_one_changed_file_costs_few_bytes(memory_store: Store, root: Path) -> None:
    for number in range(2000):
        write(root, b"pkg%d/module_%d.py" % (number % 40, number), b"x = %d\n" % number)
    client = memory_store.client()
    workspace = client.workspace(root)
    workspace.snapshot()
    before = client.stats().blob_bytes
    for number in range(10):
        write(root, b"pkg%d/module_%d.py" % (number, number), b"x = -%d\n" % number)
        workspace.snapshot()
    assert client.stats().blob_bytes - before < 10 * 9_000


def test_a_flipped_bit_in_any_blob_is_found_or_changes_nothing(memory_store: Store, root: Path) -> None:
    """P4, of files: every blob of a snapshot is damaged in turn, at its beginning, its middle and its end."""
    fill(root, 12)
    write(root, b"large", os.urandom(WHOLE_BYTES + 1))
    client = memory_store.client()
    workspace = client.workspace(root)
    saved = workspace.snapshot().checkpoint_id
    expected = in_snapshot(workspace, saved)
    backend = memory_store.backend()
    blobs = backend._blobs  # type: ignore[attr-defined]  # the memory backend's own
    found = 0
    for hash_, kept in list(blobs.items()):
        data = kept[0]
        for at in {0, len(data) // 2, len(data) - 1}:
            blobs[hash_] = (data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :], *kept[1:])
            try:
                assert in_snapshot(workspace, saved) == expected
            except HoldfastError:
                found += 1
                assert not client.verify().ok
        blobs[hash_] = kept
    assert found > 2 * len(blobs)
    assert client.verify().ok


@pytest.mark.parametrize("size", [100, WHOLE_BYTES + 1])
@pytest.mark.parametrize("reopen", [False, True])
def test_a_content_that_comes_back_is_stored_again_once_it_was_collected(
    sqlite_store: Store, root: Path, size: int, reopen: bool
) -> None:
    """What this process, or its cache, has seen of older snapshots says nothing about what the store still has."""
    client = sqlite_store.client()
    workspace = client.workspace(root)
    one, two = os.urandom(size), os.urandom(size)
    write(root, b"file", one)
    write(root, b"other", b"1")
    first = workspace.snapshot().checkpoint_id
    write(root, b"file", two)
    workspace.snapshot()
    client.expire(first)
    client.gc()
    if reopen:
        client = sqlite_store.client()
        workspace = client.workspace(root)
    write(root, b"file", one)
    last = workspace.snapshot().checkpoint_id
    assert workspace.read(last, "file") == one
    assert client.verify().ok
    write(root, b"copy", one)  # while a content that is there is not stored again
    before = client.stats().blob_bytes
    workspace.snapshot()
    assert client.stats().blob_bytes - before < 2_000
