"""What the tests of the files backend share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from holdfast.backends.files import FilesBackend
from holdfast.backends.port import ABSENT, Commit, RowKey, RowWrite, SegmentDelete, SegmentWrite
from holdfast.testing import StoreDump, dump
from holdfast.testing.harness import TREE, append, hash_bytes, head, record, record_id

SPACES = ("head", "lease")


class Crash(BaseException):
    """The end of the process: nothing is cleaned up."""


def commit(backend: FilesBackend, *commits: Commit) -> None:
    for outcome in backend.commit_all(commits):
        if outcome is not None:
            raise outcome


@contextmanager
def held(backend: FilesBackend, *, exclusive: bool = True) -> Iterator[None]:
    """While a thread of its own holds the backend's lock."""
    holding, end = Event(), Event()

    def hold() -> None:
        holding.set()
        end.wait()

    thread = Thread(target=backend._lock.hold, args=(hold,), kwargs={"exclusive": exclusive})
    thread.start()
    holding.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


def content(where: Path) -> StoreDump:
    """What a process that opens the store now sees."""
    backend = FilesBackend(where)
    try:
        return dump(backend, SPACES)
    finally:
        backend.close()


def first_commit() -> Commit:
    return Commit(
        TREE,
        record(1),
        segments=[append(1, 0, b"a"), append(2, 0, b"x")],
        blobs={hash_bytes(b"one"): b"one", hash_bytes(b"two"): b"two"},
        rows=[head(b"1", ABSENT), RowWrite(RowKey("lease", b"a", TREE), b"a", ABSENT)],
    )


def second_commit() -> Commit:
    """Moves, replacements, a touch and removals, a folder that gets empty among them."""
    return Commit(
        TREE,
        record(2),
        segments=[append(1, 1, b"b"), SegmentWrite(1, 2, 1, b"c", tail=2)],
        blobs={hash_bytes(b"one"): b"one", hash_bytes(b"three"): b"three"},
        rows=[head(b"2", 1), RowWrite(RowKey("lease", b"a", TREE), None, 1), RowWrite(RowKey("lease", b"b"), b"b", 0)],
        delete_records=[(record_id(1, TREE), b"record 1")],
        delete_segments=[SegmentDelete(2, 0, 1)],
        delete_blobs={hash_bytes(b"two"): 2**62},
    )


def crash_after(backend: FilesBackend, calls: int) -> list[str]:
    """Lets the backend die at the `calls`th point that a commit comes to. Returns the points, as they are reached."""
    points: list[str] = []

    def reached(point: str) -> None:
        points.append(point)
        if len(points) == calls:
            raise Crash(point)

    backend._journal.reached = reached
    return points
