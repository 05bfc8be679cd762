"""A SQLite file that several processes open at the same moment, the first time."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import SyncClient
from holdfast.backends.sqlite import schema
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.errors import UsageError

STATEMENTS = 12  # at least, of setting up a new file


class Overtaken(sqlite3.Connection):
    """Another process sets the file up just before one of the statements of this connection, as far as locks let it."""

    path: Path
    left: int

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        if self.left == 0:
            set_up(self.path)
        self.left -= 1
        return super().execute(statement, *values)


def set_up(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        with contextlib.suppress(sqlite3.OperationalError):  # locked
            schema.prepare(connection, path, 0)
        connection.rollback()


@pytest.fixture
def connections(tmp_path: Path) -> Iterator[list[Overtaken]]:
    """One for each statement; and the first of them is never overtaken."""
    made = []
    for number in range(-1, STATEMENTS):
        path = tmp_path / f"{number}.db"
        path.touch()
        connection = sqlite3.connect(path, isolation_level=None, factory=Overtaken)
        connection.path, connection.left = path, number
        made.append(connection)
    yield made
    for connection in made:
        connection.close()


def test_one_that_another_process_sets_up_meanwhile_is_ours(connections: list[Overtaken]):
    for connection in connections:
        schema.prepare(connection, connection.path, 1)
        assert connection.left < 0  # every one was overtaken
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA,)
        assert connection.execute("PRAGMA application_id").fetchone() == (schema.APPLICATION_ID,)
        assert connection.execute("SELECT count(*) FROM record").fetchone() == (0,)


def test_one_of_another_program_is_refused_and_left_alone(tmp_path: Path):
    path = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
        before = path.read_bytes()
        with pytest.raises(UsageError, match="another program"):
            schema.prepare(connection, path, 1)
        assert not connection.in_transaction
    assert path.read_bytes() == before


def test_a_store_from_before_feeds_is_read_without_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "store.db"
    with monkeypatch.context() as before:
        before.setattr(schema, "SCHEMA", 5)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            schema.prepare(connection, path, 1)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert schema.version_of(connection) == 5
        assert "feed" not in {row[1] for row in connection.execute("PRAGMA table_info(record)")}

    def refuse(*_: object) -> sqlite3.Connection:
        raise AssertionError("the store was copied")

    monkeypatch.setattr(schema, "upgraded_copy", refuse)
    with SyncClient.sqlite(path) as client:
        assert client.sessions() == []
        assert list(client.messages("drafts")) == []
        with contextlib.closing(SqliteBackend(path)) as backend:
            assert backend.changes(0, 10, feed=b"any") == []
            client.save("a", session_id="s", execution_state={})  # upgrades it
            assert len(backend.changes(0, 10)) == 1
            assert backend.changes(0, 10, feed=b"any") == []
