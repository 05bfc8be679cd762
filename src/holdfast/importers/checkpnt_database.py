"""Reading checkpnt's SQLite database, and leaving it exactly as it is.

    checkpoints (checkpoint_id, agent_id, session_id, parent_id, …, created_at_ms, expires_at_ms, payload)

`payload` is MessagePack of the whole checkpoint; the other columns repeat parts of it. SQLite itself is told not to
write: a plain read-only connection would make `-wal` and `-shm` beside a database in WAL mode, which checkpnt's are.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from holdfast.errors import CheckpointNotFoundError, StoreError, UsageError

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
        self._at_first = _signature(path)
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
        return _signature(self._path) != self._at_first


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Database]:
    if not path.is_file():
        raise CheckpointNotFoundError(f"there is no database {path}: no such file")
    with tempfile.TemporaryDirectory(prefix="holdfast-import-") as scratch:
        try:
            connection = _connect(path, Path(scratch))
        except sqlite3.DatabaseError as error:
            raise _unreadable(path, error) from error
        except OSError as error:
            raise StoreError(f"{path} could not be read: {error.strerror}") from error
        with contextlib.closing(connection):
            yield Database(path, connection)


def _connect(path: Path, scratch: Path) -> sqlite3.Connection:
    connection = _connected(path, scratch)
    try:
        # Names are data: text that is no UTF-8 is no reason to leave out its row.
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        _check_schema(path, connection)
        connection.execute("BEGIN")  # one state of the database for all that follows
    except BaseException:
        connection.close()
        raise
    return connection


def _connected(path: Path, scratch: Path) -> sqlite3.Connection:
    """A connection that changes nothing, and sees what is still in the `-wal`."""
    wal, shm, journal = (path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))
    if journal.exists() and journal.stat().st_size:
        raise UsageError(
            f"{path} was left in the middle of a transaction: {journal.name} must be applied to it first. Open a copy of "
            "both with checkpnt or sqlite3, then import the copy"
        )
    if not wal.exists():
        return _open(path, "immutable=1")  # nobody has it open, and no file is made beside it
    if shm.exists():
        return _open(path, "readonly_shm=1")  # shared with whoever has it open, or had when it died
    if wal.stat().st_size == 0:
        return _open(path, "immutable=1")
    # Copied from elsewhere without its -shm, which SQLite would have to make beside it.
    for file in (path, wal):
        shutil.copyfile(file, scratch / file.name)
    return sqlite3.connect(scratch / path.name)


def _open(path: Path, option: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&{option}", uri=True)


def _check_schema(path: Path, connection: sqlite3.Connection) -> None:
    there = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({TABLE})")}
    missing = sorted(_NEEDED - there)
    if missing:
        what = f"no table `{TABLE}`" if not there else f"no {', '.join(missing)} in its table `{TABLE}`"
        raise UsageError(f"{path} is no database of checkpnt 0.1: it has {what}")


def _unreadable(path: Path, error: sqlite3.DatabaseError) -> Exception:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        return UsageError(f"{path} is no SQLite database")
    return StoreError(f"{path} could not be read: {error}. A copy, or a backup, may be readable")


def _signature(path: Path) -> list[tuple[int, int]]:
    files = (path, path.with_name(path.name + "-wal"))
    return [(stat.st_size, stat.st_mtime_ns) for file in files if file.exists() for stat in (file.stat(),)]
