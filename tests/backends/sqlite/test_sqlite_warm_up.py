"""Warm-up of a SQLite store: it prepares the statements of a save and changes nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from holdfast import Client, SyncClient
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.errors import CorruptError

INSERT, SELECT = 18, 21  # what SQLite asks an authorizer about while it prepares a statement


def prepared_by_a_save(path: Path, *, ready: bool) -> list[int]:
    """The inserts and queries that a save into an existing session has to have prepared."""
    backend = SqliteBackend(path)
    actions: list[int] = []

    def note(action: int, *_: str | None) -> int:
        actions.append(action)
        return sqlite3.SQLITE_OK

    assert backend._writer is not None
    backend._writer.set_authorizer(note)
    if ready:
        backend.get_ready()
    actions.clear()
    with SyncClient(backend) as client:
        client.save("agent", execution_state={"n": 2}, session_id="s")
        assert backend._reader is None  # all of it was done by the connection that is watched
    return [action for action in actions if action in (INSERT, SELECT)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with SyncClient.sqlite(path) as client:
        client.save("agent", execution_state={"n": 1}, session_id="s")
    return path


def test_the_first_save_finds_its_statements_prepared(path: Path) -> None:
    assert {INSERT, SELECT} <= set(prepared_by_a_save(path, ready=False))
    assert prepared_by_a_save(path, ready=True) == []


def test_it_changes_nothing(path: Path) -> None:
    with sqlite3.connect(path) as before:
        content = list(before.iterdump())
    before.close()
    backend = SqliteBackend(path)
    backend.get_ready()
    assert backend._writer is not None
    assert backend._writer.total_changes == 0
    assert not backend._writer.in_transaction
    backend.close()
    with sqlite3.connect(path) as after:
        assert list(after.iterdump()) == content
    after.close()


def test_a_store_that_was_damaged_since_says_so_to_the_one_who_asks(path: Path) -> None:
    backend = SqliteBackend(path)
    path.write_bytes(b"\0" * path.stat().st_size)

    async def main() -> None:
        async with Client(backend) as client:
            with pytest.raises(CorruptError):
                await client.latest(session_id="s")

    asyncio.run(main())
