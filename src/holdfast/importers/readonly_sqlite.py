"""Read-only access to another program's SQLite database, which stays exactly as it is.

SQLite is opened in modes that never write: a plain read-only connection would create `-wal` and
`-shm` next to a database in WAL mode. The database may come from a stranger. Only real tables are
read, no expression of its schema may call a function with side effects, no value is longer than
`MAX_VALUE_BYTES`, and the CPU time of a statement is bounded by the size of the file.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.backends.sqlite.call_limits import CallLimit
from holdfast.errors import CheckpointNotFoundError, CorruptError, StoreError, UsageError

COMPANIONS = ("-wal", "-shm", "-journal")

MAX_VALUE_BYTES = 1 << 29


class LimitedConnection(sqlite3.Connection):
    """A connection whose statements are interrupted when they read more than the file can hold."""

    _limit: CallLimit | None = None

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        if self._limit is not None:
            self._limit.begin()
        return super().execute(*statement)

    def limit(self, path: Path) -> None:
        """Set the limits, before anything of the schema is used."""
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        self._limit = CallLimit(path)
        self._limit.attach(self)
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
            self.execute(f"PRAGMA {pragma}")


@contextlib.contextmanager
def connect_readonly(
    path: Path, program: str, check: Callable[[sqlite3.Connection], None]
) -> Iterator[sqlite3.Connection]:
    """Yield a connection to one snapshot of a database of `program`; `check` raises if it is not one."""
    if not path.is_file():
        raise CheckpointNotFoundError(f"there is no database {path}: no such file")
    with tempfile.TemporaryDirectory(prefix="holdfast-import-") as scratch:
        try:
            connection = _begin_reading(path, Path(scratch), program, check)
        except sqlite3.DatabaseError as error:
            raise _make_unreadable_error(path, error) from error
        except OSError as error:
            raise StoreError(f"{path} could not be read: {error.strerror}") from error
        with contextlib.closing(connection):
            yield connection


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table; none if there is no such table.

    A view or the like is refused: reading it runs a query that its author wrote.
    """
    named = "SELECT type, sql FROM sqlite_schema WHERE name = ? COLLATE NOCASE"  # as SQLite finds it
    for kind, statement in connection.execute(named, (table,)):
        if kind != "table" or str(statement).lower().startswith("create virtual"):
            actual = "virtual table" if kind == "table" else kind
            raise UsageError(
                f"its `{table}` is a {actual}, not a table: nothing was read. It is no database of the program"
            )
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}


def describe(error: Exception) -> str:
    """Return why a statement failed, for people."""
    return "reading it would take more time than a file of its size needs" if is_endless(error) else str(error)


def is_endless(error: Exception) -> bool:
    """Return whether a statement was interrupted by its limit: another one would fare no better."""
    return "interrupted" in str(error)


def signature(path: Path) -> list[tuple[int, int]]:
    """Return a value that changes when a process writes to the database."""
    files = (path, path.with_name(path.name + "-wal"))
    return [(found.st_size, found.st_mtime_ns) for file in files if file.exists() for found in (file.stat(),)]


def _begin_reading(
    path: Path, scratch: Path, program: str, check: Callable[[sqlite3.Connection], None]
) -> LimitedConnection:
    connection = _connect_copy(path, scratch, program)
    try:
        connection.limit(path)
        # Names are data: text that is not UTF-8 is no reason to leave out its row.
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        check(connection)
        connection.execute("BEGIN")  # one snapshot of the database for all that follows
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_copy(path: Path, scratch: Path, program: str) -> LimitedConnection:
    """Return a connection that changes nothing, and sees what is still in the `-wal`."""
    _refuse_linked_companions(path)
    wal, shm, journal = (path.with_name(path.name + ending) for ending in COMPANIONS)
    if journal.exists() and journal.stat().st_size:
        raise UsageError(
            f"{path} was left in the middle of a transaction: {journal.name} must be applied to it "
            f"first. Open a copy of both with {program} or sqlite3, then import the copy"
        )
    if not wal.exists():
        return _open(path, "immutable=1")  # no process has it open, and no file is created next to it
    if shm.exists():
        return _open(path, "readonly_shm=1")  # shared with the process that has it open, or had when it died
    if wal.stat().st_size == 0:
        return _open(path, "immutable=1")
    # Copied from elsewhere without its -shm, which SQLite would have to create next to it.
    for file in (path, wal):
        shutil.copyfile(file, scratch / file.name)
    return sqlite3.connect(scratch / path.name, factory=LimitedConnection)


def _refuse_linked_companions(database: Path) -> None:
    """Raise `CorruptError` if a file that SQLite keeps next to a database is a link, FIFO or the like.

    They belong to the database, and the target of a link does not; SQLite itself would wait for a
    FIFO.
    """
    for ending in COMPANIONS:
        companion = database.with_name(database.name + ending)
        try:
            mode = companion.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            raise CorruptError(
                f"{companion} is no regular file, as SQLite has beside a database: it was not followed. "
                "Remove it; if it is a link on "
                "purpose, copy the database and the files themselves to one directory"
            )


def _open(path: Path, option: str) -> LimitedConnection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&{option}", uri=True, factory=LimitedConnection)


def _make_unreadable_error(path: Path, error: sqlite3.DatabaseError) -> Exception:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        return UsageError(f"{path} is no SQLite database")
    return StoreError(f"{path} could not be read: {error}. A copy, or a backup, may be readable")
