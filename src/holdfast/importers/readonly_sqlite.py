"""Reading another program's SQLite database, and leaving it exactly as it is.

SQLite itself is told not to write: a plain read-only connection would make `-wal` and `-shm` beside a database in WAL mode.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from holdfast.errors import CheckpointNotFoundError, StoreError, UsageError


@contextlib.contextmanager
def connected(path: Path, program: str, check: Callable[[sqlite3.Connection], None]) -> Iterator[sqlite3.Connection]:
    """A connection that shows one state of the database. `program` wrote it; `check` raises if it is none of its own."""
    if not path.is_file():
        raise CheckpointNotFoundError(f"there is no database {path}: no such file")
    with tempfile.TemporaryDirectory(prefix="holdfast-import-") as scratch:
        try:
            connection = _begun(path, Path(scratch), program, check)
        except sqlite3.DatabaseError as error:
            raise _unreadable(path, error) from error
        except OSError as error:
            raise StoreError(f"{path} could not be read: {error.strerror}") from error
        with contextlib.closing(connection):
            yield connection


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}


def signature(path: Path) -> list[tuple[int, int]]:
    """Changes when somebody writes to the database."""
    files = (path, path.with_name(path.name + "-wal"))
    return [(stat.st_size, stat.st_mtime_ns) for file in files if file.exists() for stat in (file.stat(),)]


def _begun(path: Path, scratch: Path, program: str, check: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    connection = _connected(path, scratch, program)
    try:
        # Names are data: text that is no UTF-8 is no reason to leave out its row.
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        check(connection)
        connection.execute("BEGIN")  # one state of the database for all that follows
    except BaseException:
        connection.close()
        raise
    return connection


def _connected(path: Path, scratch: Path, program: str) -> sqlite3.Connection:
    """A connection that changes nothing, and sees what is still in the `-wal`."""
    wal, shm, journal = (path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))
    if journal.exists() and journal.stat().st_size:
        raise UsageError(
            f"{path} was left in the middle of a transaction: {journal.name} must be applied to it first. Open a copy of "
            f"both with {program} or sqlite3, then import the copy"
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


def _unreadable(path: Path, error: sqlite3.DatabaseError) -> Exception:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        return UsageError(f"{path} is no SQLite database")
    return StoreError(f"{path} could not be read: {error}. A copy, or a backup, may be readable")
