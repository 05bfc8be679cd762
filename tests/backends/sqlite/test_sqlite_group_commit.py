"""Commits that share a SQLite transaction: each sees what those before it have written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.backends.port import ABSENT, Commit, CommitConflict, RowKey, RowWrite
from holdfast.backends.sqlite.backend import SqliteBackend
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


def test_a_row_that_is_gone_refuses_the_commit_that_expects_it_and_nothing_is_written(backend: SqliteBackend):
    assert backend.commit_all([saved(1, RowWrite(KEY, b"first", ABSENT))]) == [None]
    writer = backend._writer
    assert writer is not None
    writer.execute("DELETE FROM row")
    outcomes = backend.commit_all([saved(2, RowWrite(KEY, b"second", 1, b"first")), saved(3)])
    assert [type(outcome) for outcome in outcomes] == [CommitConflict, type(None)]
    assert backend.records([record_id(2, TREE)]) == [None]
    assert backend.rows([KEY]) == [None]
    assert backend.commit_all([saved(2, RowWrite(KEY, b"second", ABSENT))]) == [None]
