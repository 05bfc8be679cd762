"""The SQLite file itself: settings of a connection, the owner of the file, numbered migrations."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.backends.sqlite import schema_objects
from holdfast.errors import NewerVersionError, UsageError

APPLICATION_ID = 0x686F6C64  # "hold"
SCHEMA = 6
READ_IN_PLACE = 5
"""The oldest schema that is read without a copy: what it lacks is only `FEEDS_SINCE`."""
FEEDS_SINCE = 6


def prepare(connection: sqlite3.Connection, path: Path, timeout: float) -> None:
    """Configure a connection, check the file, and create or upgrade its schema."""
    check(connection, path)
    set_up(connection, timeout)


def check(connection: sqlite3.Connection, path: Path) -> int:
    """Configure a connection, and return the version of the file's schema: 0 for an empty database.

    Raise an error unless it is a store of ours with our tables and nothing that SQLite would run. Nothing is changed.
    """
    _configure(connection)
    connection.execute("BEGIN")  # all as of one moment: another process may be setting it up
    try:
        version = version_of(connection)
        [owner] = connection.execute("PRAGMA application_id").fetchone()
        if owner == APPLICATION_ID and version > SCHEMA:
            raise NewerVersionError(
                f"the store {path} has schema {version}, and this holdfast knows {SCHEMA}: it was written by a newer "
                "holdfast. Upgrade to open it; nothing was changed"
            )
        objects = schema_objects.read_objects(connection, path)
    finally:
        connection.rollback()
    if owner != APPLICATION_ID:
        _refuse_other_program(path, version, owner, objects)
    elif version > 0 or objects:
        schema_objects.check_objects(objects, version, path)
    return version


def _configure(connection: sqlite3.Connection) -> None:
    # Before anything is read: functions that a schema calls, and malformed pages.
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.execute("PRAGMA mmap_size=0")
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    connection.execute("PRAGMA cache_size=-16000")
    # A reused WAL costs a commit a quarter less than one that grows, so it is checkpointed soon: at 4
    # MB.
    connection.execute("PRAGMA wal_autocheckpoint=1000")


def _refuse_other_program(path: Path, version: int, owner: int, objects: list[schema_objects.SchemaObject]) -> None:
    """Raise `UsageError` unless the database is empty, and of no other program."""
    tables = sorted(object_.name for object_ in objects if object_.type == "table")
    if objects:
        named = f" (its tables: {', '.join(tables[:6])}{', …' if len(tables) > 6 else ''})" if tables else ""
        raise UsageError(
            f"{path} is a SQLite database of another program{named:.300}. Give holdfast a file of its own; nothing was "
            "changed"
        )
    if version or owner:
        raise UsageError(
            f"{path} is an empty SQLite database that another program has marked as its own (application_id "
            f"{owner:#x}, user_version "
            f"{version}). Give holdfast a file of its own; nothing was changed"
        )


def is_current(connection: sqlite3.Connection) -> bool:
    """Return whether a file is ready for writers: of this schema, and in WAL mode."""
    return version_of(connection) == SCHEMA and is_in_wal_mode(connection)


def set_up(connection: sqlite3.Connection, timeout: float) -> None:
    """Prepare the file for writers: give it this schema, and WAL mode.

    Another program may have changed the mode.
    """
    if not is_in_wal_mode(connection):
        _switch_to_wal(connection, timeout)
    for number in range(version_of(connection), SCHEMA):
        migrate(connection, number + 1)


def upgraded_copy(connection: sqlite3.Connection, limit: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Return a temporary copy of an older store, with this schema: reading changes no file of a store.

    `limit` bounds the calls on it.
    """
    copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # a temporary file, if it gets large
    try:
        connection.backup(copy)
        limit(copy)
        for number in range(version_of(copy), SCHEMA):
            migrate(copy, number + 1)
    except BaseException:
        copy.close()
        raise
    return copy


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the file's schema now."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_in_wal_mode(connection: sqlite3.Connection) -> bool:
    """Return whether writers and readers of the file don't wait for each other."""
    return bool(connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal")


def _switch_to_wal(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch to WAL mode, which needs the file exclusively for an instant.

    SQLite does not wait for that by itself.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def migrate(connection: sqlite3.Connection, number: int) -> None:
    """Carry out migration `number`, unless the file has it already, perhaps from another process."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version_of(connection) < number:
            for statement in schema_objects.migration(number):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={number}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()  # if anything was begun
        raise
