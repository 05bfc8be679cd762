"""Reading checkpnt's SQLite database, and leaving it exactly as it is.

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
from holdfast.importers.readonly_sqlite import columns, connected, signature

TABLE = "checkpoints"
_PLACE = "checkpoint_id, agent_id, session_id, parent_id, created_at_ms, expires_at_ms"
_NEEDED = frozenset((*_PLACE.split(", "), "payload"))


class Place(NamedTuple):
    """Where a row stands, by its columns. Their types are not checked yet: SQLite keeps what it is given."""

    rowid: int
    checkpoint_id: str
    agent_id: str
    session_id: str
    parent_id: str | None
    created_at_ms: int
    expires_at_ms: int | None


class Database:
    """A checkpnt database that is open for reading. `damage` says what of the table could not be read at all."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._at_first = signature(path)
        self.damage: str | None = None

    def places(self) -> list[Place]:
        """All rows, without their payloads. Where a page is damaged, what lies before and behind it is read."""
        found: list[Place] = []
        try:
            for row in self._connection.execute(f"SELECT rowid, {_PLACE} FROM {TABLE} ORDER BY rowid"):
                found.append(Place(*row))  # noqa: PERF401 - what was read before an error counts
        except sqlite3.DatabaseError as error:
            behind: list[Place] = []
            last = found[-1].rowid if found else None
            with contextlib.suppress(sqlite3.DatabaseError):
                for row in self._connection.execute(f"SELECT rowid, {_PLACE} FROM {TABLE} ORDER BY rowid DESC"):
                    if last is not None and row[0] <= last:
                        break
                    behind.append(Place(*row))
            found += reversed(behind)
            after = "before the first row" if last is None else f"after row {last}"
            self.damage = f"the database is damaged {after} ({error}): what lies there can't be read"
        return found

    def payload(self, rowid: int) -> object:
        """Raises `sqlite3.DatabaseError` where the row is damaged."""
        [value] = self._connection.execute(f"SELECT payload FROM {TABLE} WHERE rowid = ?", (rowid,)).fetchone()
        return value

    def has_changed(self) -> bool:
        """Whether somebody wrote to it since it was opened."""
        return signature(self._path) != self._at_first


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Database]:
    with connected(path, "checkpnt", lambda connection: _check_schema(path, connection)) as connection:
        yield Database(path, connection)


def _check_schema(path: Path, connection: sqlite3.Connection) -> None:
    there = columns(connection, TABLE)
    missing = sorted(_NEEDED - there)
    if missing:
        what = f"no table `{TABLE}`" if not there else f"no {', '.join(missing)} in its table `{TABLE}`"
        raise UsageError(f"{path} is no database of checkpnt 0.1: it has {what}")
