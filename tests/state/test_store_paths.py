"""What can't be the path of a store is refused in words."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from holdfast import SyncClient
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.errors import StoreError, UsageError

pytestmark = pytest.mark.every_store

OPENERS = [SyncClient.sqlite, SyncClient.files]


class InBytes:
    def __fspath__(self) -> bytes:
        return b"store"


@pytest.mark.parametrize("opened", OPENERS)
@pytest.mark.parametrize(("path", "kind"), [(None, "NoneType"), (5, "int"), (b"x", "bytes"), (InBytes(), "bytes")])
def test_a_path_is_text_or_a_path(opened, path, kind: str):
    with pytest.raises(UsageError, match=f"a store's path is a {kind}: it must be a str or a Path"):
        opened(path)


@pytest.mark.parametrize("opened", [*OPENERS, lambda path: SyncClient.open(f"sqlite:///{path}")])
@pytest.mark.parametrize("path", ["a\0b", "/tmp/a\0b"])
def test_no_file_has_a_nul_in_its_name(opened, path: str):
    with pytest.raises(UsageError, match="NUL"):
        opened(path)


def test_a_device_is_no_store():
    with pytest.raises(StoreError, match=r"/dev/null can't be opened: it is a device.*Name a file"):
        SyncClient.sqlite("/dev/null")


def test_an_error_that_ends_the_transaction_of_a_migration_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """And not that there is nothing to roll back."""

    class Failing(sqlite3.Connection):
        def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
            if statement.startswith("PRAGMA application_id="):
                self.rollback()  # as SQLite does by itself
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(statement, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **options, factory=Failing))
    with pytest.raises(StoreError, match="disk I/O error"):
        SqliteBackend(tmp_path / "store.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_can_only_be_read_is_told(tmp_path: Path):
    path = tmp_path / "below" / "store.db"
    SyncClient.sqlite(path).close()
    path.parent.chmod(0o500)
    with pytest.raises(StoreError, match=r"below is read-only, and SQLite must write even to read"):
        SyncClient.sqlite(path)


@pytest.mark.parametrize("given", [{}, {"execution_state": None, "context": None}])
def test_no_state_is_an_empty_one(client: SyncClient, given):
    restored = client.restore(client.save("a", **given))
    assert (restored.execution_state, restored.agent_context) == ({}, {})
