"""The SQLite backend's positions: older files, failed batches, other writers."""

import sqlite3
from pathlib import Path

import pytest

from holdfast.backends.port import Commit
from holdfast.backends.sqlite import schema
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.testing.harness import TREE, hash_bytes, head, record, record_id


def numbers(backend: SqliteBackend, after: int = 0) -> list[tuple[int, int]]:
    return [(change.position, change.record.sequence) for change in backend.changes(after, 1000)]


def commit(backend: SqliteBackend, *commits: Commit) -> None:
    assert backend.commit_all(commits) == [None] * len(commits)


def deleting(number: int) -> Commit:
    return Commit(TREE, delete_records=[(record_id(number, TREE), b"record %d" % number)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_a_store_of_schema_1_is_migrated_when_it_is_opened(path: Path):
    old = sqlite3.connect(path, isolation_level=None)
    old.execute("PRAGMA journal_mode=WAL")
    schema.migrate(old, 1)
    old.execute("INSERT INTO session (id) VALUES (?)", (b"run-001",))
    for number in (1, 2, 3):
        old.execute(
            "INSERT INTO record (id, session, sequence, data) VALUES (?, 1, ?, ?)",
            (record_id(number, TREE), number, b"record %d" % number),
        )
    old.close()
    backend = SqliteBackend(path)
    assert numbers(backend) == [(1, 1), (2, 2), (3, 3)]
    commit(backend, deleting(3))
    assert backend.last_change() == 3
    commit(backend, Commit(TREE, record(4)))
    assert numbers(backend) == [(1, 1), (2, 2), (4, 4)]
    backend.close()
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (schema.SCHEMA,)


def test_a_batch_that_is_rolled_back_leaves_no_trace_in_the_numbers(path: Path):
    backend = SqliteBackend(path)
    commit(backend, Commit(TREE, record(1)))
    outcomes = backend.commit_all([Commit(TREE, record(2)), Commit(TREE, record(1)), Commit(TREE, record(3))])
    assert [outcome is None for outcome in outcomes] == [True, False, True]
    commit(backend, Commit(TREE, record(4), blobs={hash_bytes(b"b"): b"b"}), Commit(TREE, record(5)))
    assert [sequence for _, sequence in numbers(backend)] == [1, 2, 3, 4, 5]
    assert backend.last_change() == numbers(backend)[-1][0]


def test_what_another_process_has_written_is_counted(path: Path):
    one, two = SqliteBackend(path), SqliteBackend(path)
    for number in range(1, 20, 3):
        commit(one, Commit(TREE, record(number)))
        commit(two, Commit(TREE, record(number + 1)), Commit(TREE, record(number + 2)), deleting(number + 2))
    assert [sequence for _, sequence in numbers(one)] == [n for n in range(1, 22) if n % 3]
    assert [position for position, _ in numbers(one)] == [n for n in range(1, 22) if n % 3]


def test_only_a_deletion_of_the_newest_record_writes_down_how_far_the_numbers_went(path: Path):
    backend = SqliteBackend(path)

    def written_down() -> list[tuple[int]]:
        return sqlite3.connect(path).execute("SELECT n FROM deleted").fetchall()

    commit(backend, *(Commit(TREE, record(number)) for number in (1, 2, 3)))
    commit(backend, deleting(1), Commit(TREE, rows=[head(b"x", 0)]))
    assert written_down() == []
    commit(backend, deleting(3))
    commit(backend, deleting(2))
    assert written_down() == [(3,)]
    commit(backend, Commit(TREE, record(4)), deleting(4))
    assert written_down() == [(4,)]
    backend.compact()
    commit(SqliteBackend(path), Commit(TREE, record(5)))
    assert numbers(backend) == [(5, 5)]
