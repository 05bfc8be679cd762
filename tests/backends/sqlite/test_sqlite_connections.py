"""The connections of a SQLite store: one as long as one thread does everything; with several,
readers wait for no writer."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import SyncClient
from holdfast.backends.port import ABSENT, Commit, RowKey, RowWrite, SegmentWrite, Span
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.errors import CorruptError, UsageError
from holdfast.testing.harness import TREE, record

KEY = RowKey("head", b"one", TREE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def backend(path: Path) -> Iterator[SqliteBackend]:
    opened = SqliteBackend(path, durability="fast")
    yield opened
    opened.close()


def saved(number: int, *writes: RowWrite, runs: tuple[SegmentWrite, ...] = ()) -> Commit:
    return Commit(TREE, record(number), rows=writes, segments=runs)


def test_one_thread_reads_by_the_connection_that_it_writes_by(backend: SqliteBackend):
    with SyncClient(backend) as client:
        first = client.save("agent", execution_state={"n": 1}, session_id="s")
        assert client.restore(first).execution_state == {"n": 1}
        assert backend._reader is None


def test_who_reads_in_another_thread_does_not_wait_for_a_commit_that_waits(backend: SqliteBackend, path: Path):
    assert backend.commit_all([saved(1, RowWrite(KEY, b"first", ABSENT))]) == [None]
    with closing(sqlite3.connect(path, isolation_level=None)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN IMMEDIATE")
        committing = pool.submit(backend.commit_all, [saved(2, RowWrite(KEY, b"second", 1))])
        deadline = time.monotonic() + 20
        while not backend._writing.locked():
            assert time.monotonic() < deadline, "the commit has not begun"
            time.sleep(0.001)
        assert backend.rows([KEY]) == [(b"first", 1)]
        assert backend._writing.locked()
        other.execute("ROLLBACK")
        assert committing.result() == [None]
    assert backend.rows([KEY]) == [(b"second", 2)]


def test_who_reads_in_the_middle_of_a_commit_of_its_own_does_not_wait_for_itself(backend: SqliteBackend):
    """As a signal handler may."""
    assert backend.commit_all([saved(1, RowWrite(KEY, b"first", ABSENT))]) == [None]
    assert backend._writer is not None
    seen: list[object] = []
    backend._writer.set_trace_callback(lambda statement: seen.append(backend.rows([KEY])))
    assert backend.commit_all([saved(2, RowWrite(KEY, b"second", 1))]) == [None]
    backend._writer.set_trace_callback(None)
    assert seen
    assert all(rows == [(b"first", 1)] for rows in seen)
    assert backend.rows([KEY]) == [(b"second", 2)]


def test_a_query_that_failed_holds_on_to_nothing(backend: SqliteBackend, path: Path):
    """Else the connection would stay at what the store was then, where nothing can be written once
    another process has."""
    runs = [SegmentWrite(7, n, 1, b"element", n) for n in range(3)]
    for number, run in enumerate(runs, start=1):
        assert backend.commit_all([saved(number, runs=(run,))]) == [None]
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE run SET data = 'text' WHERE k % 4096 = 1")
        other.commit()
    with pytest.raises(CorruptError) as kept:
        backend.segments([Span(7, 0, 3)])
    with closing(SqliteBackend(path, durability="fast")) as other_process:
        assert other_process.commit_all([saved(4, RowWrite(KEY, b"theirs", ABSENT))]) == [None]
    assert backend.commit_all([saved(5, RowWrite(KEY, b"ours", 1, b"theirs"))]) == [None]
    assert kept.value.__traceback__ is not None
    assert backend.rows([KEY]) == [(b"ours", 2)]


@pytest.mark.parametrize("opened", [lambda: SyncClient.sqlite(":memory:"), lambda: SyncClient.sqlite(Path(":memory:")),
                                    lambda: SyncClient.open("sqlite:///:memory:")])  # fmt: skip
def test_a_database_in_memory_is_no_store_that_keeps_anything(opened, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"Client\.memory\(\).*memory://"):
        opened()
    assert list(tmp_path.iterdir()) == []
