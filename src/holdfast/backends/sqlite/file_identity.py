"""The files of a SQLite store: whether they may be opened, and whether they are still at their path.

SQLite keeps writing to a file that was deleted, renamed or replaced, and reports success. So a
client remembers which files it has opened, and after each commit compares them with those at the
path, by device and inode: an acknowledged save is in the file that the next process will open.

The database file itself is never opened here: closing any descriptor of it would drop the locks
that all connections of this process hold, and another process would take the store for closed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from holdfast.backends.local_path import make_directory
from holdfast.errors import CorruptError, StoreError

COMPANIONS = ("-wal", "-shm", "-journal")
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
SMALLEST_FILE = 512  # the smallest page
READERS_CHECK_SECONDS = 1.0  # seconds: reading acknowledges nothing, so it need not check each time

Identity = tuple[int, int]


class StoreFiles:
    """The files at one path. `check` raises once they are not those that were opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)
        self._real = os.path.realpath(path)  # SQLite puts its own files next to the target of a link
        self._wal_name = f"{self._real}-wal"
        self._identity: Identity | None = None  # of the database, for as long as the client lives
        self._wal: Identity | None = None  # of the WAL, as long as a connection is open
        self._shm: Identity | None = None
        self._looked_at = 0.0
        self._gone: str | None = None

    def make(self) -> bool:
        """Create the file and its parents, readable by their owner only.

        This comes before SQLite could make the file readable to all. Return whether the file is
        empty: then a store is to be set up in it.
        """
        path = self.path
        try:
            make_directory(path.parent)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._real, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            if path.is_dir():
                raise StoreError(f"the store {path} can't be opened: it is a directory. Name a file in it")
            if path.exists() and not path.is_file():
                raise StoreError(f"the store {path} can't be opened: it is a device or the like. Name a file")
            return path.stat().st_size == 0
        except OSError as error:
            raise StoreError(
                f"the store {path} can't be opened: {error.strerror}. Check that its directory can be written"
            ) from error

    # -- before a connection -----------------------------------------------------------------------------------------

    def begin(self) -> Identity:
        """Check the files that SQLite is about to open. Return the database's identity, for `is_opened`."""
        if self._gone is not None:
            raise StoreError(self._gone)
        try:
            return self._begin()
        except OSError as error:
            raise StoreError(
                f"the store {self.path} can't be opened: {error.strerror}. Check the files beside it, too"
            ) from error

    def _begin(self) -> Identity:
        for suffix in COMPANIONS:
            self._refuse_link(f"{self._real}{suffix}")
        self._refuse_super_journal(f"{self._real}-journal")
        found = _identity(self._name)
        if found is None or (self._identity is not None and found != self._identity):
            raise self._make_moved_error(found)
        if 0 < self.path.stat().st_size < SMALLEST_FILE:
            # SQLite would treat it as empty, and a new store would overwrite the rest of another.
            raise CorruptError(
                f"the file {self.path} is not a SQLite database: it is too short. If it is not a store, name another "
                "file; if it was one, restore a backup. Nothing was changed"
            )
        return found

    def is_opened(self, before: Identity) -> bool:
        """Remember which file a connection has opened, and read; return whether that is certain.

        It is if the same file was there before. The file may have been replaced meanwhile; and
        overlayfs gives a file of a lower layer another inode when it is opened for writing.
        """
        if _identity(self._name) != before:
            return False
        self._identity = before
        self._looked_at = time.monotonic()
        return True

    def remember_wal(self) -> None:
        """Remember the WAL files of a connection: they stay until the last connection is closed."""
        wal, shm = _identity(self._wal_name), _identity(f"{self._real}-shm")
        if self._wal not in (None, wal):
            raise self._make_moved_companion_error("-wal")
        self._wal, self._shm = wal, shm

    def forget_wal(self) -> None:
        """Forget the WAL and its index once no connection is open: they may be other files next time."""
        self._wal = self._shm = None

    def has_empty_wal(self) -> bool:
        """Return whether the WAL has nothing to checkpoint on closing."""
        try:
            return os.stat(self._wal_name).st_size == 0  # noqa: PTH116 - a text
        except OSError:
            return True

    def _refuse_link(self, name: str) -> None:
        """Raise if a name is a link: SQLite would follow it, and write to or delete a file elsewhere."""
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(name).st_mode):
                raise CorruptError(
                    f"the store {self.path} is not opened: {name} is a link or no regular file, and SQLite would write "
                    "to what it leads "
                    "to. holdfast makes none: remove it if you know where it comes from, else don't use the store"
                )

    def _refuse_super_journal(self, name: str) -> None:
        """Raise if a journal names a super-journal.

        SQLite deletes that file, which may be any file, once it has rolled the journal back.
        """
        with contextlib.suppress(FileNotFoundError), open(name, "rb") as journal:  # noqa: PTH123 - a text
            if journal.seek(0, os.SEEK_END) >= len(JOURNAL_MAGIC):
                journal.seek(-len(JOURNAL_MAGIC), os.SEEK_END)
                if journal.read() == JOURNAL_MAGIC:
                    raise CorruptError(
                        f"the store {self.path} is not opened: {name} names another journal, which SQLite would "
                        "delete. holdfast "
                        "makes none: remove it if you know where it comes from, else don't use the store"
                    )

    # -- while it is open --------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `StoreError` unless the database and its WAL are at their path, and so the commits too."""
        # Runs in every commit: no calls of our own, and strings, which take half the time of a Path.
        try:
            database = os.stat(self._name)  # noqa: PTH116 - a text
            if (database.st_dev, database.st_ino) == self._identity:
                if self._wal is None:
                    return
                wal = os.stat(self._wal_name)  # noqa: PTH116 - a text
                if (wal.st_dev, wal.st_ino) == self._wal:
                    return
        except OSError:
            pass
        found = _identity(self._name)
        raise self._make_moved_error(found) if found != self._identity else self._make_moved_companion_error("-wal")

    def check_sometimes(self) -> None:
        """Check all files for a reader, but only if that was not done for a while."""
        if self._gone is not None:
            raise StoreError(self._gone)
        now = time.monotonic()
        if now - self._looked_at < READERS_CHECK_SECONDS:
            return
        self._looked_at = now
        self.check()
        if self._shm is not None and _identity(f"{self._real}-shm") != self._shm:
            raise self._make_moved_companion_error("-shm")

    def _make_moved_error(self, found: Identity | None) -> StoreError:
        if found is None:
            event = "is gone: it was deleted, renamed or moved while this client had it open"
            then = (
                "Put the file back, with those beside it, and open a new client; "
                "without it, a new client makes an empty store"
            )
        else:
            event = "was replaced by another file while this client had it open"
            then = "Open a new client, which uses the file that is there now"
        self._gone = (
            f"the store {self.path} {event}. What is saved now would not be found there. {then}; then save again"
        )
        return StoreError(self._gone)

    def _make_moved_companion_error(self, suffix: str) -> StoreError:
        self._gone = (
            f"the file {self._real}{suffix} was deleted or replaced while this client had the store {self.path} open: "
            "what is saved "
            "now would not be found by others. Close all clients of the store, open new ones, and save again"
        )
        return StoreError(self._gone)


def _identity(name: str) -> Identity | None:
    """Return the identity of the file of that name; None if there is none."""
    try:
        found = os.stat(name)  # noqa: PTH116 - in every commit, and half as quick by a Path
    except OSError:
        return None
    return found.st_dev, found.st_ino
