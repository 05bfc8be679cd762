"""The files backend itself: opening, locking, and the verbs of the port."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from holdfast.backends.files import change_log, layout, queries
from holdfast.backends.files import commit as commits
from holdfast.backends.files.disk import Disk, store_error
from holdfast.backends.files.journal import CommitJournal
from holdfast.backends.files.lock import StoreLock
from holdfast.backends.files.write_set import Changes, StoreView
from holdfast.backends.local_path import absolute, make_directory
from holdfast.backends.port import (
    BlobInfo,
    Capabilities,
    Change,
    Commit,
    CommitConflict,
    Record,
    Row,
    RowKey,
    Segment,
    SegmentInfo,
    Span,
    Usage,
)
from holdfast.errors import CorruptError, HoldfastError, NewerVersionError, StoreError, UsageError

T = TypeVar("T")
DURABILITIES = ("full", "fast")
TIMEOUT = 30.0
MAX_ABOUT = 64 * 1024  # bytes of holdfast.json


def open_url(url: str, **options: Any) -> FilesBackend:
    """Open `file:///absolute/directory`, percent-encoded where a URL needs it.

    Options are those of `FilesBackend`.
    """
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc or not parts.path.startswith("/") or not url.startswith("file:///"):
        raise UsageError(
            f"{url!r} is not a files store: the URL is 'file:///absolute/directory', with three slashes and no host"
        )
    if parts.query or parts.fragment:
        raise UsageError(f"{url!r} has a '?' or '#': if it is part of a name, write %3F or %23; options are arguments")
    directory = unquote_to_bytes(parts.path)
    if b"\0" in directory:
        raise UsageError(f"{url!r} has a NUL in it: no directory can be called so")
    return FilesBackend(os.fsdecode(directory), **options)


class FilesBackend:
    """A store in a directory of its own, which is created if it is missing.

    An existing store is opened without writing; only commits and `compact` write to it.
    `durability="full"` syncs every commit to the disk. `"fast"` leaves that to the system: commits
    survive the end of the process, however sudden, but a power cut may lose or damage the last ones
    (damage is detected, never returned). `timeout` is the number of seconds to wait for a lock that
    another process holds.
    """

    def __init__(
        self, directory: str | os.PathLike[str], durability: str = "full", *, timeout: float = TIMEOUT
    ) -> None:
        if sys.platform == "win32":
            raise UsageError("the files store needs flock, which Windows does not have: use the SQLite store there")
        if durability not in DURABILITIES:
            raise UsageError(f"durability is {durability!r}: the files store offers 'full' (the default) and 'fast'")
        self._root = str(absolute(directory))
        self._durability = durability
        self._closed = False
        self._disk = Disk(self._root, durable=durability == "full")
        self._journal = CommitJournal(self._disk)
        self._lock = StoreLock(self._disk.tree, layout.LOCK, timeout)
        self._prepared: tuple[int, int] | None = None  # the identity of the store that is ready for writing
        try:
            self._open()
        except BaseException as error:
            self._lock.close()
            if isinstance(error, OSError):
                raise store_error(self._root, "opened", error) from error
            raise

    @cached_property  # each save asks for them
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="files",
            durability=self._durability,
            location=self._root,
            directory=self._root,
            timeout=self._lock.timeout,
            feeds=True,
        )

    def _open(self) -> None:
        if _is_store(self._disk):
            self._lock.hold(self._journal.view, exclusive=False)  # raises at once if the journal is invalid
        else:
            make_directory(Path(self._root))
            self._lock.hold(self._prepare, exclusive=True)

    def _prepare(self) -> None:
        """Put the store into the state that writers need, and carry out a pending journal."""
        is_prepared = self._prepared is not None and self._check_directory() == self._prepared
        self._disk.make_folder(layout.STAGED)
        self._journal.replay()
        if is_prepared:
            return
        self._journal.clear()
        if not _is_store(self._disk):  # no other process created it first
            about = json.dumps({"format": layout.FORMAT, "layout": "files"}).encode() + b"\n"
            staged = f"{layout.STAGED}/about"
            self._disk.create(staged, about)
            self._disk.move(staged, layout.ABOUT)
            self._disk.sync_folder("")
        if self._disk.info(layout.ORDER) is None:
            change_log.build(self._disk)
        self._prepared = self._check_directory()

    def _check_directory(self) -> tuple[int, int]:
        """Return the identity of the store at the path; raise `StoreError` if its files are gone.

        A client could go on in an emptied directory, but the next one would refuse to open that.
        """
        try:
            about = self._disk.tree.info(layout.ABOUT)
        except FileNotFoundError as error:
            raise StoreError(
                f"the store in {self._root} is gone: its {layout.ABOUT} was deleted, renamed or moved while this "
                "client "
                "had it open. What is saved now would not be found there. Put the files back, or empty the directory, "
                "and open a new client; then save again"
            ) from error
        return about.st_dev, about.st_ino

    # -- writing -------------------------------------------------------------------------------------------------------

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        return self._write(lambda: self._commit_all(commits))

    def _commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        try:
            return self._commit_together(commits)
        except Exception as error:
            if len(commits) == 1:
                return [self._translate(error, "written")]
        # A write failed: each commit is tried by itself, so that it fails alone.
        outcomes: list[BaseException | None] = []
        for commit in commits:
            try:
                outcomes += self._commit_together([commit])
            except Exception as error:
                outcomes.append(self._translate(error, "written"))
        return outcomes

    def _commit_together(self, wanted: Sequence[Commit]) -> list[BaseException | None]:
        """Commit together; raise an error if nothing of them all was done."""
        self._prepare()
        together = Changes(self._disk, cache(lambda: change_log.last_position(self._disk)))
        outcomes: list[BaseException | None] = []
        for commit in wanted:
            alone = Changes(together, together.last_position)
            try:
                commits.decide(alone, commit)
            except (CommitConflict, HoldfastError) as refusal:
                outcomes.append(refusal)
            else:
                together.absorb(alone)
                outcomes.append(None)
        self._journal.commit(together)
        # After the commit: a later change of the files happens to a save that was there.
        try:
            self._check_directory()
        except StoreError as error:
            return [StoreError(str(error)) if outcome is None else outcome for outcome in outcomes]
        return outcomes

    # -- reading -------------------------------------------------------------------------------------------------------

    def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        return self._read(lambda view: queries.records(view, ids))

    def session_records(self, session: bytes, *, before: int | None = None, limit: int | None = None) -> list[Record]:
        return self._read(lambda view: queries.session_records(view, session, before, limit))

    def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        return self._read(lambda view: queries.find_ids(view, ending, limit))

    def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        return self._read(lambda view: queries.segments(view, spans))

    def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        return self._read(lambda view: queries.blobs(view, hashes))

    def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        return self._read(lambda view: queries.rows(view, keys))

    def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        return self._read(lambda view: queries.scan(view, space, tree=tree, prefix=prefix, after=after, limit=limit))

    def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        return self._read(lambda view: queries.page_records(view, after, limit))

    def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
        self._check_open()
        with self._translate_errors("read"):
            if not change_log.has_news(self._disk, after):
                return []
        return self._read(lambda view: change_log.changes(view, after, limit, feed))

    def recent(self, before: int | None, limit: int) -> list[Change]:
        return self._read(lambda view: change_log.recent(view, before, limit))

    def last_change(self) -> int:
        return self._read(change_log.last_position)

    def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        return self._read(lambda view: queries.page_segments(view, after, limit))

    def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        return self._read(lambda view: queries.page_blobs(view, after, limit))

    def usage(self) -> Usage:
        return self._read(queries.usage)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Remove what a crashed commit left staged, and the entries of deleted records in the order.

        Deleted files are gone at once.
        """

        def tidy() -> None:
            self._prepare()
            self._journal.clear()
            change_log.shorten(self._disk)

        self._write(tidy)

    def close(self) -> None:
        self._closed = True
        self._lock.close()

    def _read(self, query: Callable[[StoreView], T]) -> T:
        """Run a query under the shared lock, and write nothing.

        A pending commit is seen as if it were carried out: the next writer carries it out.
        """
        self._check_open()
        with self._translate_errors("read"):
            return self._lock.hold(lambda: query(self._journal.view()), exclusive=False)

    def _write(self, change: Callable[[], T]) -> T:
        self._check_open()
        with self._translate_errors("written"):
            return self._lock.hold(change, exclusive=True)

    @contextmanager
    def _translate_errors(self, attempted: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise store_error(self._root, attempted, error) from error

    def _translate(self, error: Exception, attempted: str) -> Exception:
        return store_error(self._root, attempted, error) if isinstance(error, OSError) else error

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"the store in {self._root} was closed: open it again to go on")


def _is_store(disk: Disk) -> bool:
    """Return whether the directory is a store of ours, False if it is absent or empty.

    Raise an error if it is anything else.
    """
    raw = disk.read(layout.ABOUT, MAX_ABOUT)
    if raw is None:
        others = [name for name in disk.names("") if name not in (layout.LOCK, layout.STAGED) and name[0] != "."]
        # Another process may have created the store in between: it writes this file first.
        raw = disk.read(layout.ABOUT, MAX_ABOUT)
        if raw is None and others:
            raise UsageError(
                f"{disk.root} is not a store (it has no {layout.ABOUT}) and not empty (it has {min(others)!r}): "
                "name a new or an empty directory"
            )
    if raw is None:
        return False
    try:
        about = json.loads(raw)
        number, kind = int(about["format"]), about["layout"]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CorruptError(
            f'{disk.resolve(layout.ABOUT)} is damaged: it should be {{"format": {layout.FORMAT}, "layout": "files"}}. '
            "If nothing else is, write that into it"
        ) from error
    if number > layout.FORMAT:
        raise NewerVersionError(
            f"the store in {disk.root} has format {number}, this holdfast knows {layout.FORMAT}: it was written by a "
            "newer one, and was left untouched. Upgrade holdfast to open it"
        )
    if kind != "files":
        raise UsageError(f"the store in {disk.root} has the layout {kind!r}, not 'files': open it with that backend")
    return True
