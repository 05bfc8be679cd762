"""The SQLite file itself: its directory, its settings, its numbered migrations."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from holdfast.errors import CorruptError, NewerVersionError, UsageError

APPLICATION_ID = 0x686F6C64  # "hold"
MIGRATIONS = Path(__file__).with_name("sqlite_migrations")
SCHEMA = 3
SMALLEST_FILE = 512  # the smallest page


def prepare(connection: sqlite3.Connection, path: Path, timeout: float) -> None:
    """Sets up a connection, and the schema where the file is new or older than this holdfast."""
    if 0 < path.stat().st_size < SMALLEST_FILE:
        # SQLite would take it for an empty one, and a new store would be made over what is left of another.
        raise CorruptError(f"the file {path} is cut short: it is no SQLite database. Keep a copy, and restore a backup")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA:
        _set_up(connection, path, timeout)
    # Now, not in the first save.
    connection.execute("SELECT 1 FROM record LIMIT 0")
    # Reading a wrong page as if it were right must fail here, not later.
    connection.execute("PRAGMA cell_size_check=ON")
    connection.execute("PRAGMA cache_size=-16000")
    # A WAL that is used again costs a commit a quarter less than one that grows, so it is brought home soon: at 4 MB.
    connection.execute("PRAGMA wal_autocheckpoint=1000")


def _set_up(connection: sqlite3.Connection, path: Path, timeout: float) -> None:
    version, owner, has_tables = _as_it_is(connection)
    if owner == APPLICATION_ID and version > SCHEMA:
        raise NewerVersionError(
            f"the store {path} has schema {version}, and this holdfast knows {SCHEMA}: it was written by a newer "
            "holdfast. Upgrade to open it; nothing was changed"
        )
    if owner != APPLICATION_ID and has_tables:
        raise UsageError(f"{path} is a SQLite database of another program. Give holdfast a file of its own")
    _switch_to_wal(connection, timeout)
    for number in range(SCHEMA):
        _migrate(connection, number + 1)


def _as_it_is(connection: sqlite3.Connection) -> tuple[int, int, bool]:
    """The schema's version, whose file it is, and whether there is anything in it: all as of one moment. Another process may set
    it up between two questions, and tables that nobody owned a moment before would be taken for another program's."""
    connection.execute("BEGIN")
    try:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        [owner] = connection.execute("PRAGMA application_id").fetchone()
        return version, owner, connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
    finally:
        connection.rollback()


def _switch_to_wal(connection: sqlite3.Connection, timeout: float) -> None:
    """Switching needs the file for itself for an instant, and SQLite does not wait for that by itself."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _migrate(connection: sqlite3.Connection, number: int) -> None:
    """Carries out migration `number`, unless the file has it already, from another process perhaps."""
    script = next(MIGRATIONS.glob(f"{number:03}_*.sql")).read_text()
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("PRAGMA user_version").fetchone()[0] < number:
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={number}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()  # if anything was begun
        raise


def _statements(script: str) -> list[str]:
    """The statements of a script one by one: `executescript` would commit the transaction they belong to."""
    statements, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements
