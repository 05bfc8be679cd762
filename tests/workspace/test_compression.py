"""Contents are compressed in threads: each arrives once and unchanged, also after an error."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import Store
from trees import in_snapshot, on_disk, write

from holdfast import SyncClient
from holdfast.format import frame
from holdfast.workspace.limits import WorkspaceLimits
from holdfast.workspace.snapshot import compress as compressing
from holdfast.workspace.snapshot.compress import Blobs, Contents
from holdfast.workspace.snapshot.read_file import ContentReader

THREAD = "holdfast-compressing"


@pytest.fixture
def by_threads(monkeypatch) -> set[str]:
    """Batches of a few files, and two processors to work on them; the names of the threads that did."""
    monkeypatch.setattr(compressing, "BATCH_CONTENTS", 3)
    monkeypatch.setattr(compressing, "usable_processors", lambda: 2)
    inner, names = compressing.frame_all, set()

    def framed(contents: Contents) -> Blobs:
        names.add(threading.current_thread().name.rpartition("_")[0])
        return inner(contents)

    monkeypatch.setattr(compressing, "frame_all", framed)
    return names


def contents_of(seed: int, count: int) -> Contents:
    chosen = random.Random(seed)
    made = (
        chosen.randbytes(chosen.randrange(1, 300)) * chosen.choice((1, 1, 40))
        if chosen.random() < 0.9
        else chosen.choice((os.urandom(70_000), bytes(70_000)))
        for _ in range(count)
    )
    return {hashlib.sha256(data).digest(): data for data in made}


def in_batches(contents: Contents, size: int) -> Iterator[Contents]:
    items = list(contents.items())
    for start in range(0, len(items), size):
        yield dict(items[start : start + size])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_thread() -> bool:
    return any(thread.name.startswith(THREAD) for thread in threading.enumerate())


@given(st.lists(st.binary(max_size=400) | st.binary(min_size=1, max_size=20).map(lambda data: data * 50), max_size=20))
def test_many_at_once_are_the_same_as_one_by_one(contents: list[bytes]) -> None:
    frames = frame.compress_all(contents, frame.deflater())
    assert frames == [frame.compress(content) for content in contents]
    assert [frame.content(framed) for framed in frames] == contents


def test_a_compressor_that_takes_one_at_a_time_gives_the_same() -> None:
    class Plain:
        compress = staticmethod(frame.deflater().compress)

    contents = [b"one " * 100, b"2", os.urandom(50)]
    assert frame.compress_all(contents, Plain()) == frame.compress_all(contents, frame.deflater())


@pytest.mark.parametrize("processors", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_everything_arrives_once_and_as_it_was(by_threads, monkeypatch, processors: int, size: int) -> None:
    monkeypatch.setattr(compressing, "usable_processors", lambda: processors)
    monkeypatch.setattr(compressing, "STAGED_BYTES", 5000)
    contents = contents_of(size, 200)
    few: Contents = {}
    portions = list(compressing.compress_batches(in_batches(contents, size), few))
    arrived = [
        (hash_, frame.content(framed), length) for portion in portions for hash_, (framed, length) in portion.items()
    ]
    arrived += [(hash_, data, len(data)) for hash_, data in few.items()]
    assert sorted(arrived) == sorted((hash_, data, len(data)) for hash_, data in contents.items())
    assert len(portions) > 5 if size < len(contents) else few == contents
    assert (THREAD in by_threads) == (processors > 1 and compressing.BATCH_CONTENTS <= size < len(contents))
    wait_for(lambda: not has_thread())


def test_what_does_not_become_smaller_is_kept_as_it_is() -> None:
    noise, text = os.urandom(100_000), b"text " * 20_000
    blobs = compressing.frame_all({b"noise": noise, b"text": text, b"short": b"!"})
    assert blobs[b"noise"] == (frame.RAW + noise, len(noise))
    assert blobs[b"short"] == (frame.RAW + b"!", 1)
    assert len(blobs[b"text"][0]) < 1000


def test_what_fails_in_the_thread_is_raised_and_the_thread_ends(by_threads, monkeypatch) -> None:
    def failing(contents: Contents) -> Blobs:
        raise MemoryError("no room")

    monkeypatch.setattr(compressing, "frame_all", failing)
    with pytest.raises(MemoryError, match="no room"):
        list(compressing.compress_batches(in_batches(contents_of(1, 40), 4), {}))
    wait_for(lambda: not has_thread())


def test_a_thread_does_not_outlive_who_gave_up(by_threads, monkeypatch) -> None:
    monkeypatch.setattr(compressing, "STAGED_BYTES", 1)
    given_up = compressing.compress_batches(in_batches(contents_of(2, 60), 4), {})
    next(given_up)
    given_up.close()
    assert THREAD in by_threads
    wait_for(lambda: not has_thread())


def fill(root: Path) -> None:
    chosen = random.Random(7)
    for number in range(60):
        write(root, b"d%d/f%d" % (number % 4, number), chosen.randbytes(chosen.randrange(900)), mode=0o640)
    for name in (b"twice", b"d1/twice"):
        write(root, name, b"the same " * 90)
    write(root, b"large", chosen.randbytes(700_000) + b"x" * 700_000)
    write(root, b"\xff odd", b"1")
    write(root, b"empty", b"")
    write(root, b"nothing in it", None)
    (root / "link").symlink_to("d1/twice")


def test_a_snapshot_is_the_directory_whoever_compresses(store: Store, root: Path, by_threads) -> None:
    fill(root)
    client = store.client()
    workspace = client.workspace(root)
    report = workspace.snapshot()
    assert THREAD in by_threads
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)
    assert client.verify().ok
    assert workspace.snapshot().changed == 0


def test_a_look_compresses_nothing(quick: SyncClient, root: Path, by_threads) -> None:
    fill(root)
    assert len(quick.workspace(root).status()) == len(on_disk(root))
    assert not by_threads


def test_a_snapshot_that_stops_at_a_limit_leaves_no_thread(quick: SyncClient, root: Path, by_threads) -> None:
    fill(root)
    report = quick.workspace(root, limits=WorkspaceLimits(max_files=50)).snapshot()
    assert report.snapshot.not_taken is not None
    assert "more than 50 files" in report.snapshot.not_taken.reason
    del report
    wait_for(lambda: not has_thread())


def gone(path: Path) -> None:
    path.unlink()


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b" and more")


def large(path: Path) -> None:
    path.write_bytes(b"large" * 500_000)


def a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inner").write_bytes(b"1")


@pytest.mark.parametrize("change", [gone, grown, large, a_link, a_pipe, a_directory])
def test_a_new_file_that_is_another_once_it_is_read(
    quick: SyncClient, root: Path, monkeypatch, by_threads, change: Callable[[Path], None]
) -> None:
    """It was listed as a file, and something happens to it before it is opened."""
    fill(root)
    read_new = ContentReader.read_new

    def changed_before(self: ContentReader, name: bytes, directory: int):
        if name == b"f33":
            monkeypatch.setattr(ContentReader, "read_new", read_new)
            change(root / "d1/f33")
        return read_new(self, name, directory)

    monkeypatch.setattr(ContentReader, "read_new", changed_before)
    workspace = quick.workspace(root)
    report = workspace.snapshot()
    assert ContentReader.read_new is read_new
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)
    assert [one.path for one in report.snapshot.skipped] == ([b"d1/f33"] if change is a_pipe else [])
    files = [entry for entry in workspace.entries(report.checkpoint_id) if entry.kind == "file"]
    assert (report.snapshot.files, report.snapshot.size) == (len(files), sum(entry.size for entry in files))


def test_a_listing_that_does_not_tell_what_is_a_file(quick: SyncClient, root: Path, monkeypatch) -> None:
    """Some file systems list names only, and asking for each may fail."""
    fill(root)
    inner = os.scandir

    class Name:
        def __init__(self, name: str) -> None:
            self.name = name

        def is_file(self, *, follow_symlinks: bool) -> bool:
            if self.name.startswith("f1"):
                raise PermissionError(13, "Permission denied")
            return False

    @contextlib.contextmanager
    def names_only(directory: int) -> Iterator[list[Name]]:
        with inner(directory) as listed:
            yield [Name(one.name) for one in listed]

    workspace = quick.workspace(root)
    monkeypatch.setattr(os, "scandir", names_only)
    report = workspace.snapshot()
    monkeypatch.undo()
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)


def test_a_new_file_that_can_not_be_opened_is_said_to_be(quick: SyncClient, root: Path, monkeypatch) -> None:
    fill(root)
    inner = os.open

    def refusing(path, *args, **named):
        if path == b"f33":
            raise PermissionError(13, "Permission denied")
        return inner(path, *args, **named)

    workspace = quick.workspace(root)
    monkeypatch.setattr(os, "open", refusing)
    report = workspace.snapshot()
    [skipped] = report.snapshot.skipped
    assert skipped.path == b"d1/f33"
    assert "Permission denied" in skipped.reason
