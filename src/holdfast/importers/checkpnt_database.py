"""A read-only view of checkpnt's SQLite database.

    checkpoints (checkpoint_id, agent_id, session_id, parent_id, …, created_at_ms, expires_at_ms, payload)

`payload` is MessagePack of the whole checkpoint; the other columns repeat parts of it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import UsageError
from holdfast.importers.readonly_sqlite import columns, connect_readonly, describe, signature

TABLE = "checkpoints"
_PLACE = "checkpoint_id, agent_id, session_id, parent_id, created_at_ms, expires_at_ms"
_NEEDED = frozenset((*_PLACE.split(", "), "payload"))


class RowLocation(NamedTuple):
    """The location of a row, by its columns. Types are unchecked: SQLite stores any."""

    rowid: int
    checkpoint_id: str
    agent_id: str
    session_id: str
    parent_id: str | None
    created_at_ms: int
    expires_at_ms: int | None


class Database:
    """A checkpnt database open for reading. `damage` names the parts of the table that are unreadable."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._at_first = signature(path)
        self.damage: str | None = None

    def places(self) -> list[RowLocation]:
        """Return all rows, without payloads. Around a damaged page, the rows before and after it are read."""
        found: list[RowLocation] = []
        try:
            for row in self._connection.execute(f"SELECT rowid, {_PLACE} FROM {TABLE} ORDER BY rowid"):
                if found and row[0] <= found[-1].rowid:  # pages that are reached in many ways: it would go on for hours
                    self.damage = f"the database is damaged after row {found[-1].rowid}: its rows begin again"
                    break
                found.append(RowLocation(*row))
        except sqlite3.DatabaseError as error:
            behind: list[RowLocation] = []
            last = found[-1].rowid if found else None
            with contextlib.suppress(sqlite3.DatabaseError):
                for row in self._connection.execute(f"SELECT rowid, {_PLACE} FROM {TABLE} ORDER BY rowid DESC"):
                    if last is not None and row[0] <= last:
                        break
                    behind.append(RowLocation(*row))
            found += reversed(behind)
            after = "before the first row" if last is None else f"after row {last}"
            self.damage = f"the database is damaged {after} ({describe(error)}): what lies there can't be read"
        return found

    def payload(self, rowid: int) -> object:
        """Return the payload of a row; raise `sqlite3.DatabaseError` if the row is damaged."""
        [value] = self._connection.execute(f"SELECT payload FROM {TABLE} WHERE rowid = ?", (rowid,)).fetchone()
        return value

    def has_changed(self) -> bool:
        """Return whether another process wrote to it since it was opened."""
        return signature(self._path) != self._at_first


@contextlib.contextmanager
def open_database(path: Path) -> Iterator[Database]:
    with connect_readonly(path, "checkpnt", lambda connection: _check_schema(path, connection)) as connection:
        yield Database(path, connection)


def _check_schema(path: Path, connection: sqlite3.Connection) -> None:
    found_columns = columns(connection, TABLE)
    missing = sorted(_NEEDED - found_columns)
    if missing:
        fault = f"no table `{TABLE}`" if not found_columns else f"no {', '.join(missing)} in its table `{TABLE}`"
        raise UsageError(f"{path} is no database of checkpnt 0.1: it has {fault}")
