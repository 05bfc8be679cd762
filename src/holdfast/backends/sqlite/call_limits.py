"""Limits on the cost of one call in SQLite: a damaged or hostile file ends a call, it does not hang.

A table is a tree of pages. In a damaged file many paths may lead to one page: a query would then
return the same rows for hours. Intact tables are read once at most, so the CPU time of a call is
bounded by the size of the file.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

INSTRUCTIONS = 100_000  # of SQLite's virtual machine between two checks of the clock: about a millisecond
SECONDS = 2.0  # of CPU for any call; waiting does not count, so a busy machine or a slow disk does no harm
WRITING_SECONDS = 30.0  # for a call that writes: it may bring much that the file does not have yet
BYTES_PER_SECOND = 2_000_000  # a call may take a second more for each of these; SQLite reads some 100 MB
LONGEST_STATEMENT = 200_000  # also of one in the schema


class CallLimit:
    """The CPU time that the present call of one connection may take."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = 0.0  # by the clock of the thread; 0: unknown, since the call has been quick so far
        self._seconds = SECONDS

    def attach(self, connection: sqlite3.Connection) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, LONGEST_STATEMENT)
        connection.set_progress_handler(self._is_exceeded, INSTRUCTIONS)

    def begin(self, *, writing: bool = False) -> None:
        """Reset the limit at the beginning of a call."""
        self._began = 0.0
        self._seconds = WRITING_SECONDS if writing else SECONDS

    def _is_exceeded(self) -> bool:
        """Return whether SQLite must end the call."""
        now = time.thread_time()
        if not self._began:
            self._began = now
        taken = now - self._began
        return taken > self._seconds and taken > self._seconds + self._size() / BYTES_PER_SECOND

    def _size(self) -> int:
        size = 0
        for suffix in ("", "-wal"):
            with contextlib.suppress(OSError):
                # The allocated size: a file with holes can claim any size.
                size += Path(f"{self._path}{suffix}").stat().st_blocks * 512
        return size
