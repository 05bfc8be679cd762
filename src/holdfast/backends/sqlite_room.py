"""Room in the WAL, ahead of what will be committed.

The sync of a commit that makes the WAL longer has to write down the file's new length and blocks, too, which on every file
system we measured takes as long again as the pages do. So once commits follow each other, zeros are put behind the end of the
WAL, some at a time, and the commits after that go over them. SQLite reads a WAL up to the first frame whose checksum is
wrong: zeros end it as what an earlier round has left there does.

Only who holds SQLite's write lock may do so: nobody else writes to the WAL then. And SQLite keeps no lock on this file, which closing
a second descriptor would drop.
"""

from __future__ import annotations

import os
from pathlib import Path

LEAST_BYTES = 64 * 1024
MOST_BYTES = 512 * 1024
ENOUGH_BYTES = 1020 * 4120  # beyond 1,000 frames it begins again at its start
_BLOCK = 4096


class Room:
    """Of one connection's WAL, which no one shortens while that is open."""

    def __init__(self, store: Path) -> None:
        self._wal = f"{store.resolve()}-wal"
        self._size = -1  # when it was last looked at; a commit that has made it longer found no room, or too little
        self._end = 0  # what was used of it when that was last known
        self._since = 0  # commits that were made then
        self._commit = 0  # what one of them takes, as far as is known
        self._is_enough = not hasattr(os, "pwrite")  # Windows does without

    def make(self) -> None:
        """To be called with the write lock held, before the commit. A store that is saved to once gets none."""
        if self._is_enough:
            return
        try:
            size = os.stat(self._wal).st_size  # noqa: PTH116 - in every commit, and half as quick by a Path
            if size >= ENOUGH_BYTES:
                self._is_enough = True
            elif not 0 <= self._size <= size:  # it was not looked at yet, or somebody has shortened it
                self._end, self._since = size, 0
            else:
                size = self._ahead(size)
            self._size = size
        except OSError:  # a full disk: then the commit says so, or finds room
            self._is_enough = True

    def _ahead(self, size: int) -> int:
        """Makes room for this commit and the next, if they are like those before: who finds too little waits as long as who finds
        none. Returns the size then."""
        self._since += 1
        if size > self._size:
            self._learn(size)
        elif self._end + (self._since + 1) * self._commit > size:
            self._learn(self._used(size))
        return self._add(size) if self._end + 2 * self._commit > size else size

    def _learn(self, end: int) -> None:
        self._commit = (end - self._end) // self._since
        self._end, self._since = end, 0

    def _used(self, size: int) -> int:
        """Where the zeros begin: what is before them was written since."""
        descriptor = os.open(self._wal, os.O_RDONLY)
        try:
            return self._end + len(os.pread(descriptor, size - self._end, self._end).rstrip(b"\0"))
        finally:
            os.close(descriptor)

    def _add(self, size: int) -> int:
        """As much again as there is, within limits."""
        end = (size + min(max(size, LEAST_BYTES), MOST_BYTES)) // _BLOCK * _BLOCK
        descriptor = os.open(self._wal, os.O_WRONLY)
        try:
            return size + os.pwrite(descriptor, bytes(end - size), size)
        finally:
            os.close(descriptor)
