"""Every edit is found: by the walk, by inotify, across processes, with any state of the cache."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import Store
from trees import in_snapshot, note_entered, on_disk, remove, tick, write

from holdfast import SyncClient
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.workspace.scan import inotify as watching
from holdfast.workspace.scan import stat_pass
from holdfast.workspace.scan import walk as walking
from holdfast.workspace.scan.stat_cache import CacheFile
from holdfast.workspace.snapshot import compress

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


NAMES = st.sampled_from([b"a", b"b", b"c", b"\xff", b"long name", b"x.log"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
EDITS = st.one_of(
    st.tuples(st.just("file"), PATHS, st.binary(max_size=20)),
    st.tuples(st.just("dir"), PATHS, st.none()),
    st.tuples(st.just("remove"), PATHS, st.none()),
    st.tuples(st.just("mode"), PATHS, st.sampled_from([0o600, 0o644, 0o755, 0o700])),
    st.tuples(st.just("link"), PATHS, st.sampled_from(["a", "../b", "nowhere"])),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("in place"), PATHS, st.binary(min_size=3, max_size=3)),
)


def edit(root: Path, doing: str, path: bytes, value) -> None:
    """One edit, if it can be made: over whatever is there."""
    whole = os.path.join(os.fsencode(root), path)
    try:
        if doing == "file":
            write(root, path, value)
        elif doing == "dir":
            write(root, path, None)
        elif doing == "remove":
            remove(root, path)
        elif doing == "mode" and not os.path.islink(whole):
            os.chmod(whole, value)
        elif doing == "link":
            write(root, path, b"")
            os.unlink(whole)
            os.symlink(value, whole)
        elif doing == "rename":
            os.rename(whole, os.path.join(os.fsencode(root), value))
        elif doing == "in place" and not os.path.islink(whole):
            with open(whole, "r+b") as file:
                file.write(value)
    except OSError:
        return


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.lists(st.lists(EDITS, max_size=6), min_size=1, max_size=4),
    watch=st.booleans(),
    reopen=st.booleans(),
    batch=st.sampled_from([2, compress.BATCH_CONTENTS]),
)
def test_after_any_edits_a_snapshot_is_the_directory(
    tmp_path_factory, steps, watch, reopen, batch, monkeypatch
) -> None:
    monkeypatch.setattr(compress, "BATCH_CONTENTS", batch)  # with 2, by a thread
    monkeypatch.setattr(compress, "usable_processors", lambda: 2)
    where = tmp_path_factory.mktemp("edits")
    root = where / "project"
    root.mkdir()
    backend = SqliteBackend(where / "store.db", durability="fast") if reopen else MemoryBackend()
    client = SyncClient(backend)
    workspace = client.workspace(root, watch=watch)
    taken = []
    try:
        for edits in steps:
            for one in edits:
                edit(root, *one)
            if reopen:
                workspace.close()
                workspace = client.workspace(root, watch=watch)
            status = {change.path for change in workspace.status()}
            report = workspace.snapshot()
            assert len(status) == report.changed
            taken.append((report.checkpoint_id, on_disk(root)))
            assert workspace.status() == []
        for checkpoint_id, expected in taken:
            assert in_snapshot(workspace, checkpoint_id) == expected
        assert client.verify().ok
        fresh = SyncClient(MemoryBackend()).workspace(root).snapshot().snapshot
        assert fresh == workspace.snapshot().snapshot  # found step by step, or all at once: it is the same
    finally:
        workspace.close()
        client.close()


def same_times(path: Path, seen: os.stat_result) -> None:
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def test_an_edit_in_the_same_instant_is_found(quick: SyncClient, root: Path, monkeypatch) -> None:
    """As on a file system whose timestamps are coarse: the ctime that is seen does not change with the content."""
    path = root / "file"
    path.write_bytes(b"one")
    frozen = path.stat().st_ctime_ns

    class Coarse:
        """What os.stat says, with the time of the first look."""

        def __init__(self, seen: os.stat_result) -> None:
            self._seen = seen

        def __getattr__(self, name: str):
            return frozen if name == "st_ctime_ns" else getattr(self._seen, name)

    real_stat, real_fstat = os.stat, os.fstat
    monkeypatch.setattr(walking.os, "stat", lambda *args, **named: Coarse(real_stat(*args, **named)))
    monkeypatch.setattr(walking.os, "fstat", lambda *args: Coarse(real_fstat(*args)))
    workspace = quick.workspace(root)
    first = workspace.snapshot()
    path.write_bytes(b"two")
    second = workspace.snapshot()
    assert (workspace.read(first.checkpoint_id, "file"), workspace.read(second.checkpoint_id, "file")) == (
        b"one",
        b"two",
    )


def test_a_file_that_changes_while_it_is_read_is_read_again(quick: SyncClient, root: Path, monkeypatch) -> None:
    path = root / "file"
    path.write_bytes(b"before")
    real, reads = os.pread, []

    def read_and_write(descriptor: int, size: int, at: int) -> bytes:
        data = real(descriptor, size, at)
        reads.append(data)
        if len(reads) == 1:
            path.write_bytes(b"while!")
        return data

    monkeypatch.setattr(os, "pread", read_and_write)
    workspace = quick.workspace(root)
    report = workspace.snapshot()
    assert workspace.read(report.checkpoint_id, "file") == b"while!"
    assert reads == [b"before", b"while!"]
    assert report.snapshot.notes == ()


def test_a_file_that_never_rests_is_kept_and_said_to_be_torn(quick: SyncClient, root: Path, monkeypatch) -> None:
    path = root / "file"
    path.write_bytes(b"0")
    real, count = os.pread, []

    def read_and_write(descriptor: int, size: int, at: int) -> bytes:
        data = real(descriptor, size, at)
        count.append(data)
        path.write_bytes(b"%d" % (len(count) % 10))
        return data

    monkeypatch.setattr(os, "pread", read_and_write)
    workspace = quick.workspace(root)
    report = workspace.snapshot()
    assert report.snapshot.notes == ("'file' changed while it was read",)
    monkeypatch.undo()
    assert [change.path for change in workspace.status()] == [b"file"]


def test_deep_finds_what_no_time_tells(sqlite_store: Store, root: Path, monkeypatch) -> None:
    path = root / "file"
    path.write_bytes(b"one")
    client = sqlite_store.client()
    workspace = client.workspace(root)
    monkeypatch.setattr(walking, "RACY_NS", -(10**18))  # everything is taken to be settled
    first = workspace.snapshot()
    cache = workspace._opened.taker._cache
    assert cache is not None
    path.write_bytes(b"two")
    seen = path.stat()
    files = cache.directories[b""].files
    files[b"file"] = files[b"file"]._replace(ctime_ns=seen.st_ctime_ns, inode=seen.st_ino)  # as if nothing had happened
    cache.directories[b""].ctime_ns = root.stat().st_ctime_ns
    assert workspace.status() == []
    assert workspace.verify(first.checkpoint_id, deep=True).unseen == (b"file",)
    assert workspace.read(workspace.snapshot(deep=True).checkpoint_id, "file") == b"two"


def test_what_no_time_tells_is_found_by_and_by(quick: SyncClient, root: Path, monkeypatch) -> None:
    """Some files are read at each snapshot, whatever their times say: with one in three, three
    snapshots read all of them."""
    for number in range(20):
        write(root, b"d%d/f%d" % (number % 2, number), b"one")
    workspace = quick.workspace(root)
    monkeypatch.setattr(walking, "RACY_NS", -(10**18))  # everything is taken to be settled
    workspace.snapshot()
    cache = workspace._opened.taker._cache
    assert cache is not None
    (root / "d1/f7").write_bytes(b"two")
    known = cache.directories[b"d1"].files
    known[b"f7"] = known[b"f7"]._replace(ctime_ns=(root / "d1/f7").stat().st_ctime_ns)  # as if nothing had happened
    monkeypatch.setattr(stat_pass, "SAMPLED", 10**9)
    assert workspace.snapshot().changed == 0
    monkeypatch.setattr(stat_pass, "SAMPLED", 3)
    for _ in range(200):  # which third it is, each checkpoint's id decides
        report = workspace.snapshot()
        if report.changed:
            break
    assert workspace.read(report.checkpoint_id, "d1/f7") == b"two"
    assert [note for note in report.snapshot.notes if "d1/f7" in note]
    assert workspace.snapshot().changed == 0


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "empty", "other"])
def test_the_cache_may_be_lost_or_damaged(sqlite_store: Store, root: Path, damage: str) -> None:
    for number in range(30):
        write(root, b"d%d/f%d" % (number % 3, number), b"%d" % number)
    first = sqlite_store.client().workspace(root).snapshot()
    write(root, b"d1/f1", b"changed")
    sqlite_store.client().workspace(root).snapshot()
    [cache] = (sqlite_store.where / "store.db-workspaces").iterdir()
    data = cache.read_bytes()
    if damage == "gone":
        cache.unlink()
    elif damage == "cut":
        cache.write_bytes(data[:-5])
    elif damage == "flipped":
        cache.write_bytes(data[:20] + bytes((data[20] ^ 1,)) + data[21:])
    elif damage == "empty":
        cache.write_bytes(b"")
    else:
        cache.write_bytes(b"something else altogether")
    client = sqlite_store.client()
    before = client.stats().blob_bytes
    workspace = client.workspace(root)
    report = workspace.snapshot()
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)
    assert client.stats().blob_bytes == before  # the session's snapshot says what the store has
    assert [change.path for change in workspace.diff(first.checkpoint_id, report.checkpoint_id)] == [b"d1/f1"]
    assert client.verify().ok


def test_what_could_not_be_added_to_the_cache_misleads_nobody(sqlite_store: Store, root: Path, monkeypatch) -> None:
    monkeypatch.setattr(walking, "RACY_NS", -(10**18))  # everything is taken to be settled
    write(root, b"d/first", b"1")
    workspace = sqlite_store.client().workspace(root)
    workspace.snapshot()

    def fails(self: CacheFile, part: bytes) -> bool:
        raise OSError("no space")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(CacheFile, "_append", fails)
        full_disk.setattr(Path, "mkdir", fails)
        write(root, b"d/second", b"2")
        assert workspace.snapshot().changed == 1
    write(root, b"d/third", b"3")
    assert workspace.snapshot().changed == 1
    (root / "d/second").write_bytes(b"other")
    again = sqlite_store.client().workspace(root)
    assert [change.path for change in again.status()] == [b"d/second"]
    assert in_snapshot(again, again.snapshot().checkpoint_id) == on_disk(root)


def test_what_a_process_left_that_died_while_it_wrote_is_swept(sqlite_store: Store, root: Path) -> None:
    write(root, b"file", b"1")
    sqlite_store.client().workspace(root).snapshot()
    [cache] = (sqlite_store.where / "store.db-workspaces").iterdir()
    died = subprocess.Popen([sys.executable, "-c", ""])
    died.wait()
    left, ours = cache.with_name(f"{cache.name}.{died.pid}"), cache.with_name(f"{cache.name}.{os.getpid()}")
    left.write_bytes(b"half")
    ours.write_bytes(b"half")  # of a process that lives
    sqlite_store.client().workspace(root).status()
    assert (left.exists(), ours.exists()) == (True, True)  # who looks changes nothing
    sqlite_store.client().workspace(root).snapshot()
    assert (left.exists(), ours.exists()) == (False, True)


def test_a_new_process_reads_only_what_changed(sqlite_store: Store, root: Path, monkeypatch) -> None:
    for number in range(50):
        write(root, b"d%d/f%d" % (number % 5, number), b"%d" % number)
    monkeypatch.setattr(walking, "RACY_NS", 0)
    sqlite_store.client().workspace(root).snapshot()
    (root / "d1/f1").write_bytes(b"changed")
    opened: list[bytes] = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: opened.append(real(*args)) or opened[-1])
    report = sqlite_store.client().workspace(root).snapshot()
    assert opened == [b"changed"]
    assert report.changed == 1


def test_two_processes_that_share_a_cache_do_not_mislead_each_other(sqlite_store: Store, root: Path) -> None:
    write(root, b"a/f", b"1")
    write(root, b"b/f", b"1")
    one, two = (sqlite_store.client().workspace(root) for _ in range(2))
    one.snapshot()
    two.snapshot()
    write(root, b"a/f", b"2")
    one.snapshot()
    write(root, b"b/f", b"2")
    two.snapshot()  # knows nothing of what the first one saw
    write(root, b"a/f", b"3")
    one.snapshot()
    third = sqlite_store.client().workspace(root)
    report = third.snapshot()
    assert in_snapshot(third, report.checkpoint_id) == on_disk(root)


def test_hints_are_looked_at_alone_and_the_rest_later(quick: SyncClient, root: Path) -> None:
    write(root, b"a", b"1")
    write(root, b"d/b", b"1")
    workspace = quick.workspace(root)
    workspace.snapshot()
    write(root, b"a", b"2")
    write(root, b"d/b", b"2")
    write(root, b"new/deep/c", b"1")
    hinted = workspace.snapshot(hints=[str(root / "a"), "new/deep/c"])
    assert workspace.read(hinted.checkpoint_id, "a") == b"2"
    assert workspace.read(hinted.checkpoint_id, "new/deep/c") == b"1"
    assert workspace.read(hinted.checkpoint_id, "d/b") == b"1"
    assert [change.path for change in workspace.status()] == [b"d/b"]


# -- inotify -----------------------------------------------------------------------------------------------------------


@on_linux
def test_a_watched_workspace_looks_at_nothing_else(quick: SyncClient, root: Path, monkeypatch) -> None:
    for number in range(200):
        write(root, b"d%d/f%d" % (number % 20, number), b"1")
    workspace = quick.workspace(root, watch=True)
    workspace.snapshot()
    (root / "d3/f3").write_bytes(b"2")
    write(root, b"d4/new/deep/file", b"3")
    os.rename(root / "d5", root / "moved")
    looked: list[bytes] = []
    real = os.stat

    def counting(path, *args, **named):
        if named.get("dir_fd") is not None:
            looked.append(path)
        return real(path, *args, **named)

    monkeypatch.setattr(os, "stat", counting)
    report = workspace.snapshot()
    monkeypatch.undo()
    assert len(looked) < 40
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)
    write(root, b"moved/after", b"1")  # in a directory that is known by another name now
    write(root, b"d4/new/deep/file", b"4")
    assert in_snapshot(workspace, workspace.snapshot().checkpoint_id) == on_disk(root)
    workspace.close()


@on_linux
def test_an_overflow_of_the_kernels_queue_leads_to_a_walk(quick: SyncClient, root: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip(f"the queue takes {limit} events")
    write(root, b"d/file", b"1")
    workspace = quick.workspace(root, watch=True)
    workspace.snapshot()
    path = root / "d/file"
    other = root / "other"
    for _ in range(limit // 2 + 10):  # equal events in a row are one: so they alternate
        path.touch()
        other.touch()
    write(root, b"d/unheard", b"of")
    report = workspace.snapshot()
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)
    write(root, b"d/heard", b"again")
    assert in_snapshot(workspace, workspace.snapshot().checkpoint_id) == on_disk(root)
    workspace.close()


@on_linux
def test_without_watches_the_walk_goes_on(quick: SyncClient, root: Path, monkeypatch) -> None:
    write(root, b"d/file", b"1")
    workspace = quick.workspace(root, watch=True)
    watch = workspace._opened.taker.watch
    assert watch is not None
    watch.problem = "the limit of watches is reached (fs.inotify.max_user_watches)"
    workspace.snapshot()
    write(root, b"d/file", b"2")
    assert workspace.read(workspace.snapshot().checkpoint_id, "d/file") == b"2"
    workspace.close()


@on_linux
def test_what_a_failed_save_was_told_is_not_lost(quick: SyncClient, root: Path) -> None:
    write(root, b"a", b"1")
    workspace = quick.workspace(root, watch=True)
    first = quick.save("agent", session_id="s", workspace=workspace)
    quick.save("agent", session_id="s", workspace=workspace)
    write(root, b"a", b"2")
    with pytest.raises(Exception, match="stands at"):
        quick.save("agent", session_id="s", workspace=workspace, expect_head=first)
    assert workspace.read(quick.save("agent", session_id="s", workspace=workspace), "a") == b"2"
    workspace.close()


@on_linux
def test_an_ignore_file_that_changes_is_obeyed_by_a_watch(quick: SyncClient, root: Path) -> None:
    write(root, b"d/x.log", b"1")
    workspace = quick.workspace(root, watch=True)
    workspace.snapshot()
    write(root, b".gitignore", b"*.log\n")
    report = workspace.snapshot()
    assert [entry.path for entry in workspace.entries(report.checkpoint_id)] == [b".gitignore", b"d"]
    workspace.close()


def test_a_file_system_that_others_may_change_is_not_watched(tmp_path: Path) -> None:
    assert not watching.is_possible(Path("/proc"))


def test_the_event_loop_goes_on_beside_a_snapshot(memory_store: Store, root: Path) -> None:
    """Everything that takes long happens elsewhere: while files are read, the loop turns."""
    for number in range(300):
        write(root, b"d%d/f%d" % (number % 10, number), os.urandom(20_000))

    async def main() -> int:
        client = memory_store.async_client()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        report = await client.workspace(root).snapshot()
        counting.cancel()
        assert report.snapshot.files == 300
        await client.close()
        return turns

    assert asyncio.run(main()) > 20


def _swap_for_link(root: Path) -> None:
    (root / "a" / "b").rename(root / "a" / "moved")
    os.symlink("moved", root / "a" / "b")


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "large" / "f7").write_bytes(b"other"),
        lambda root: (root / "a" / "b" / "c" / "f").write_bytes(b"other"),
        lambda root: (root / "a" / "b" / "c" / "f").chmod(0o640),
        lambda root: write(root, b"a/b/c/new/f", b"new"),
        lambda root: write(root, b"a/b/.gitignore", b"f\n"),
        lambda root: (root / "ruled" / "in" / "f").write_bytes(b"other"),
        lambda root: remove(root, b"a/b"),
        lambda root: (root / "a" / "b").chmod(0o750),
        lambda root: (root / "a" / "b").rename(root / "large" / "b"),
        _swap_for_link,
    ],
)
def test_a_change_among_much_that_is_as_it_was(quick: SyncClient, root: Path, monkeypatch, change) -> None:
    """Nothing is so young here that it is looked at in any case: what is found is found by the look over everything."""
    monkeypatch.setattr(walking, "RACY_NS", 0)
    for number in range(40):
        write(root, b"large/f%d" % number, b"%d" % number)
    for path in (b"a/f", b"a/b/f", b"a/b/c/f", b"a/b/c/d/e/f", b"ruled/.gitignore", b"ruled/in/f", b"other/f"):
        write(root, path, b"x\n")
    settled = tick(root)
    workspace = quick.workspace(root)
    workspace.snapshot()
    entered = note_entered(monkeypatch)
    assert workspace.snapshot().changed == 0
    assert set(entered) == {b"", b"ruled"}  # the root, and what decides about what is left out
    assert tick(root) > settled
    change(root)
    taken = workspace.snapshot()
    expected = on_disk(root)
    if (root / "a" / "b" / ".gitignore").exists():
        expected = {
            path: what for path, what in expected.items() if not (path.startswith(b"a/b/") and path.endswith(b"/f"))
        }
    assert in_snapshot(workspace, taken.checkpoint_id) == expected
    assert taken.changed > 0
