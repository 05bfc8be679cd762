"""What a process remembers of a SQLite store spares it statements, and is never more than the store's own word."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.backends import sqlite_batch
from holdfast.backends.port import ABSENT, Commit, CommitConflict, RowKey, RowWrite
from holdfast.backends.sqlite import SqliteBackend
from holdfast.errors import CorruptError
from holdfast.testing.harness import TREE, record, record_id

KEY = RowKey("head", b"one", TREE)


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[SqliteBackend]:
    opened = SqliteBackend(tmp_path / "store.db", durability="fast")
    yield opened
    opened.close()


def saved(number: int, *writes: RowWrite) -> Commit:
    return Commit(TREE, record(number), rows=writes)


def test_a_row_that_is_made_and_changed_in_one_transaction(backend: SqliteBackend):
    commits = [saved(n, RowWrite(KEY, b"value %d" % n, n - 1)) for n in (1, 2, 3)]
    assert backend.commit_all(commits) == [None, None, None]
    assert backend.rows([KEY]) == [(b"value 3", 3)]
    assert backend.commit_all([saved(4, RowWrite(KEY, b"value 4", 3, b"value 3"))]) == [None]
    assert backend.rows([KEY]) == [(b"value 4", 4)]


def test_a_row_that_is_gone_against_all_that_is_known_is_damage_and_nothing_is_written(backend: SqliteBackend):
    assert backend.commit_all([saved(1, RowWrite(KEY, b"first", ABSENT))]) == [None]
    writer = backend._writer
    assert writer is not None
    writer.execute("DELETE FROM row")  # by the same connection: nothing says that somebody else has written
    [outcome] = backend.commit_all([saved(2, RowWrite(KEY, b"second", 1, b"first"))])
    assert isinstance(outcome, CorruptError)
    assert backend.records([record_id(2, TREE)]) == [None]
    assert backend.rows([KEY]) == [None]
    # From then on the store is asked again.
    [outcome] = backend.commit_all([saved(2, RowWrite(KEY, b"second", 1, b"first"))])
    assert isinstance(outcome, CommitConflict)
    assert backend.commit_all([saved(2, RowWrite(KEY, b"second", ABSENT))]) == [None]


def test_no_more_is_remembered_than_allowed(backend: SqliteBackend, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite_batch, "REMEMBERED", 10)
    for number in range(1, 60):
        write = RowWrite(RowKey("head", b"%d" % number, TREE), b"value", ABSENT)
        assert backend.commit_all([saved(number, write)]) == [None]
        assert len(backend._known.rows) <= 12
    assert backend.rows([RowKey("head", b"1", TREE), RowKey("head", b"59", TREE)]) == [(b"value", 1)] * 2
