"""A hot rollback journal: what a program left that was killed while it wrote in journal mode DELETE.

SQLite rolls such a journal back as soon as a connection reads, which changes the file. Reading must
change nothing, so a reader gets a temporary copy that is rolled back. The next writer opens the
file itself.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from holdfast.backends.sqlite import schema


class HotJournalError(Exception):
    """There is a hot journal: the file can't be read without changing it."""


def refuse_hot_journal(path: Path) -> None:
    """Raise `HotJournalError` if the next connection that reads would change the file."""
    try:
        if not path.with_name(f"{path.name}-journal").stat().st_size:
            return
    except OSError:
        return
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as probe:
        try:
            probe.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error as error:  # any other one is met again, and reported, by what comes next
            if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
                raise HotJournalError from error


def rolled_back_copy(path: Path, limit: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Return a temporary copy of a store, rolled back and upgraded. `limit` bounds the calls on it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as scratch:
        copied = Path(scratch, "store.db")
        # The journal first: with it, a file that another process is rolling back becomes whole, too.
        with contextlib.suppress(FileNotFoundError):  # another process has rolled it back by now
            shutil.copyfile(f"{path}-journal", f"{copied}-journal")
        shutil.copyfile(path, copied)
        with contextlib.closing(sqlite3.connect(copied, isolation_level=None)) as connection:
            limit(connection)
            schema.check(connection, path)
            return schema.upgraded_copy(connection, limit)
