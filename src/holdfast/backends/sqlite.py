"""The SQLite backend, the default: one file, no server, safe with many threads and processes.

WAL, `synchronous=FULL` (a commit survives a power cut) or NORMAL for `durability="fast"` (it survives `kill -9`; a
power cut may lose the last commits, never tear one). Writers take the write lock at once (`BEGIN IMMEDIATE`) and wait
for each other; commits that arrive together share one transaction, so one fsync. The WAL is never truncated in
service: reusing it saves 40 % of a commit. Until it is used again, `sqlite_room.py` makes room in it ahead.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any, TypeVar
from weakref import WeakSet

from holdfast.backends import sqlite_commit, sqlite_index, sqlite_schema
from holdfast.backends.directories import absolute, make_directory
from holdfast.backends.port import (
    MAX_LOG_ELEMENTS,
    BlobInfo,
    Capabilities,
    Change,
    Commit,
    CommitConflict,
    Record,
    Row,
    RowKey,
    Run,
    RunInfo,
    Span,
    Usage,
)
from holdfast.backends.sqlite_batch import Batch, Known
from holdfast.backends.sqlite_room import Room
from holdfast.errors import CorruptError, StoreError, UsageError

T = TypeVar("T")
C = TypeVar("C")
# sqlite3 fails to decode its own message when the damaged part of a file is in it.
FAILURES = (sqlite3.Error, UnicodeDecodeError)
SYNCHRONOUS = {"full": "FULL", "fast": "NORMAL"}
RECORD_TYPES = (bytes, bytes, int, bytes)
MANY_BLOBS = {
    count: f"SELECT hash, data FROM blob WHERE hash IN ({', '.join('?' * count)})" for count in (64, 16)
}  # those that are asked for at once
MALFORMED = "malformed row: a value is not of the type that was stored"


def open_url(url: str, **options: Any) -> SqliteBackend:
    """`sqlite:///relative/path.db` or `sqlite:////absolute/path.db`."""
    prefix = "sqlite:///"
    if not url.startswith(prefix) or len(url) == len(prefix):
        raise UsageError(
            f"{url!r} is not a SQLite store: the URL is 'sqlite:///relative.db' or 'sqlite:////absolute/path.db'"
        )
    if "?" in url:
        raise UsageError(
            f"{url!r} has a '?': options are given beside the URL, as in Client.open(url, durability='fast'). A file with "
            "such a name is opened by its path: Client.sqlite(path)"
        )
    return SqliteBackend(url.removeprefix(prefix), **options)


class SqliteBackend:
    def __init__(self, path: str | os.PathLike[str], *, durability: str = "full", timeout: float = 30.0) -> None:
        if durability not in SYNCHRONOUS:
            raise UsageError(f"durability is {durability!r}: SQLite offers 'full' (the default) and 'fast'")
        if str(path) == ":memory:":  # each connection would have a database of its own
            raise UsageError(
                "a SQLite store is a file, and ':memory:' is none: for a store that is gone with the process use Client.memory(), "
                "or the URL 'memory://'"
            )
        self._path = absolute(path)  # connections are opened later, too, when the process may be in another directory
        self._durability = durability
        self._timeout = timeout
        self._closed = False
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._known = Known()
        self._room: Room | None = None
        self._batch: Batch | None = None  # of the writer, while that is as the last commit left it
        self._only_thread: int | None = 0  # that has called so far; 0: none has, None: several have
        self._prepare_file()
        _backends.add(self)
        with self._writing, self._translated("opened"):
            self._connected("_writer")  # now, not in the first save

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(name="sqlite", durability=self._durability, location=str(self._path))

    # -- writing -----------------------------------------------------------------------------------------------------

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        self._is_shared()  # one that only writes counts, too: nobody else may then read by its connection
        with self._writing:
            try:
                batch = self._batch or self._new_batch()
                self._batch = None  # until it is done: whatever interrupts it, the next one looks at the writer first
                outcomes = self._transaction(batch.carry_out, commits)
                self._batch = batch
                return outcomes
            except Exception as error:
                self._known.forget()
                if len(commits) == 1 and not isinstance(error, sqlite3.IntegrityError):
                    return [self._translate(error, "written")]
            # One of them can't be written as it is: each gets a transaction of its own, so that it fails alone.
            return [self._alone(commit) for commit in commits]

    def _new_batch(self) -> Batch:
        connection = self._connected("_writer")
        return Batch(connection, self._known, self._room)

    def _alone(self, commit: Commit) -> BaseException | None:
        def carry_out(commit: Commit) -> None:
            connection = self._connected("_writer")
            connection.execute("BEGIN IMMEDIATE")
            sqlite_commit.carry_out(connection, commit, sqlite_commit.last_record(connection))
            connection.execute("COMMIT")

        try:
            self._transaction(carry_out, commit)
        except Exception as error:
            return self._translate(error, "written")
        return None

    def _transaction(self, carry_out: Callable[[C], T], given: C) -> T:
        try:
            return carry_out(given)
        except (CommitConflict, sqlite3.IntegrityError):
            self._known.forget()
            assert self._writer is not None
            self._writer.execute("ROLLBACK")
            raise
        except BaseException:
            # After a failed fsync nobody knows what the connection believes: the next commit opens a new one.
            self._known.forget()
            self._discard("_writer")
            raise

    # -- reading -----------------------------------------------------------------------------------------------------

    def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        def read(connection: sqlite3.Connection) -> list[Record | None]:
            found = (connection.execute(sqlite_index.RECORD_OF_ID, (id_,)).fetchone() for id_ in ids)
            return [Record(*_typed(row, RECORD_TYPES)) if row else None for row in found]

        return self._read(read)

    def session_records(self, session: bytes, *, before: int | None = None, limit: int | None = None) -> list[Record]:
        def read(connection: sqlite3.Connection) -> list[Record]:
            rows = connection.execute(
                sqlite_index.RECORDS_OF_SESSION,
                (session, 2**62 if before is None else before, -1 if limit is None else limit),
            )
            return [Record(*_typed(row, RECORD_TYPES)) for row in rows]

        return self._read(read)

    def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        def read(connection: sqlite3.Connection) -> list[bytes]:
            # All ids are looked at: whole bytes are compared first, which is much quicker than their digits.
            whole = bytes.fromhex(ending[len(ending) % 2 :])
            rows = connection.execute(
                sqlite_index.IDS,
                (-len(whole) if whole else 17, whole, ending.lower(), limit),
            )
            return [_typed(row, (bytes,))[0] for row in rows]

        if not all(digit in "0123456789abcdefABCDEF" for digit in ending):
            return []
        return self._read(read)

    def runs(self, spans: Sequence[Span]) -> list[list[Run]]:
        def read(connection: sqlite3.Connection) -> list[list[Run]]:
            found = []
            for log, first, end in spans:
                base = log * MAX_LOG_ELEMENTS
                rows = connection.execute(
                    "SELECT k, length, data FROM run WHERE k < ?3 AND k >= "
                    "coalesce((SELECT max(k) FROM run WHERE k >= ?1 AND k <= ?2), ?2) ORDER BY k",
                    (base, base + first, base + end),
                )
                of_span = []
                for k, length, data in rows:
                    # As in `_typed`, without a call: of small runs there are many.
                    if type(k) is not int or type(length) is not int or type(data) is not bytes:
                        raise sqlite3.DatabaseError(MALFORMED)
                    if k - base + length > first:
                        of_span.append(Run(k - base, length, data))
                found.append(of_span)
            return found

        return self._read(read)

    def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        def read(connection: sqlite3.Connection) -> list[bytes | None]:
            found: dict[bytes, bytes] = {}
            at = 0
            # A statement takes a lock and gives it back: of many blobs, that is more than finding them.
            for count, statement in MANY_BLOBS.items():
                while len(hashes) - at >= count:
                    found.update(connection.execute(statement, hashes[at : at + count]))
                    at += count
            for hash_ in hashes[at:]:
                row = connection.execute("SELECT data FROM blob WHERE hash = ?", (hash_,)).fetchone()
                if row:
                    found[hash_] = row[0]
            if not {*map(type, found), *map(type, found.values())} <= {bytes}:
                raise sqlite3.DatabaseError(MALFORMED)
            return [found.get(hash_) for hash_ in hashes]

        return self._read(read)

    def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        def read(connection: sqlite3.Connection) -> list[Row | None]:
            found = [connection.execute(sqlite_commit.ROW, key).fetchone() for key in keys]
            return [Row(*_typed(row, (bytes, int))) if row else None for row in found]

        return self._read(read)

    def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        def read(connection: sqlite3.Connection) -> list[tuple[RowKey, Row]]:
            # Plain bounds, so that SQLite goes to the first one and stops behind the last one.
            bounds, values = "key >= ?", [space, prefix]
            if after is not None and after >= prefix:
                bounds, values = "key > ?", [space, after]
            if (end := _end_of(prefix)) is not None:
                bounds, values = f"{bounds} AND key < ?", [*values, end]
            if tree is not None:
                bounds, values = f"{bounds} AND tree = ?", [*values, tree]
            rows = connection.execute(
                f"SELECT key, tree, value, version FROM row WHERE space = ? AND {bounds} ORDER BY key, tree LIMIT ?",
                (*values, -1 if limit is None else limit),
            )
            typed = (_typed(row, (bytes, bytes, bytes, int)) for row in rows)
            return [(RowKey(space, key, of_tree), Row(value, version)) for key, of_tree, value, version in typed]

        return self._read(read)

    def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        def read(connection: sqlite3.Connection) -> list[Record]:
            rows = connection.execute(sqlite_index.RECORDS_BY_ID, (after or b"", limit))
            return [Record(*_typed(row, RECORD_TYPES)) for row in rows]

        return self._read(read)

    def changes(self, after: int, limit: int) -> list[Change]:
        def read(connection: sqlite3.Connection) -> list[Change]:
            # `n` is the key that the table is stored by: if there is nothing new, this looks at its last page only.
            rows = connection.execute(
                "SELECT record.n, record.id, session.id, sequence, data FROM record "
                "JOIN session ON session.n = record.session WHERE record.n > ? ORDER BY record.n LIMIT ?",
                (after, limit),
            )
            typed = (_typed(row, (int, *RECORD_TYPES)) for row in rows)
            return [Change(n, Record(*columns)) for n, *columns in typed]

        return self._read(read)

    def last_change(self) -> int:
        return self._read(sqlite_commit.last_record)

    def page_runs(self, after: tuple[int, int] | None, limit: int) -> list[RunInfo]:
        def read(connection: sqlite3.Connection) -> list[RunInfo]:
            start = -1 if after is None else after[0] * MAX_LOG_ELEMENTS + after[1]
            rows = connection.execute(
                "SELECT k, length, length(data) FROM run WHERE k > ? ORDER BY k LIMIT ?", (start, limit)
            )
            typed = (_typed(row, (int, int, int)) for row in rows)
            return [RunInfo(k // MAX_LOG_ELEMENTS, k % MAX_LOG_ELEMENTS, length, size) for k, length, size in typed]

        return self._read(read)

    def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        def read(connection: sqlite3.Connection) -> list[BlobInfo]:
            rows = connection.execute(
                "SELECT hash, length(data), written_at_us FROM blob WHERE hash > ? ORDER BY hash LIMIT ?",
                (after or b"", limit),
            )
            return [BlobInfo(*_typed(row, (bytes, int, int))) for row in rows]

        return self._read(read)

    def usage(self) -> Usage:
        def read(connection: sqlite3.Connection) -> Usage:
            counts, sizes = {}, {}
            for table, column in (("record", "data"), ("run", "data"), ("blob", "data"), ("row", "value")):
                counts[f"{table}s"], sizes[f"{table}_bytes"] = connection.execute(
                    f"SELECT count(*), coalesce(sum(length({column})), 0) FROM {table}"
                ).fetchone()
            return Usage(**counts, **sizes, total_bytes=self._bytes_on_disk())

        return self._read(read)

    def _bytes_on_disk(self) -> int:
        files = (Path(f"{self._path}{suffix}") for suffix in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    # -- life --------------------------------------------------------------------------------------------------------

    def get_ready(self) -> None:
        """Prepares the statements of a save, which takes as long as carrying them out."""
        self.rows([RowKey("", b"")])
        self.records([b""])
        self.runs([Span(0, 0, 0)])
        with self._writing, self._translated("opened"):
            sqlite_commit.prepare(self._connected("_writer"))

    def compact(self) -> None:
        with self._writing, self._translated("compacted"):
            connection = self._connected("_writer")
            self._known.forget()
            free = connection.execute("PRAGMA freelist_count").fetchone()[0]
            if free:
                connection.execute("VACUUM")

    def close(self) -> None:
        with self._writing, self._reading:
            self._closed = True
            self._discard("_reader")
            self._discard("_writer")

    def _prepare_file(self) -> None:
        """Makes the file and its parents, readable by their owner only, before SQLite could make it readable to all.

        A file that is there is never opened but by SQLite: closing any descriptor of it would drop the locks that all of
        this process's connections hold, and another process would take the store for closed.
        """
        try:
            make_directory(self._path.parent)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            if self._path.is_dir():
                raise StoreError(f"the store {self._path} can't be opened: it is a directory. Name a file in it")
            if self._path.exists() and not self._path.is_file():
                raise StoreError(f"the store {self._path} can't be opened: it is a device or the like. Name a file")
        except OSError as error:
            raise StoreError(
                f"the store {self._path} can't be opened: {error.strerror}. Check that its directory can be written"
            ) from error

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """As long as one thread does everything, it reads by the connection that it writes by: that is open, and what it wrote is
        at hand. Where there are several, readers have a connection of their own, and wait for no writer. Nor does a signal
        handler that reads in the middle of a commit."""
        if self._is_shared() or self._writing.locked():
            with self._reading, self._translated("read"):
                try:
                    return query(self._connected("_reader"))
                except BaseException:  # as below
                    self._discard("_reader")
                    raise
        # By `with`, and not by asking for the lock without waiting: no signal comes between taking it and giving it back.
        with self._writing, self._translated("read"):
            try:
                return query(self._connected("_writer"))
            except BaseException:
                # The error may keep a statement from ending, which then holds on to what the store was: on that, nothing can be
                # written once somebody else has. So the connection goes.
                self._discard("_writer")
                raise

    def _is_shared(self) -> bool:
        """Whether more than one thread has called."""
        me = get_ident()
        if self._only_thread != me:
            self._only_thread = me if self._only_thread == 0 else None
        return self._only_thread is None

    def _connected(self, role: str) -> sqlite3.Connection:
        """The connection of that role; a new one if there is none."""
        if self._closed:
            raise StoreError(f"the store {self._path} was closed: open a new client")
        connection: sqlite3.Connection | None = getattr(self, role)
        if connection is not None and connection.in_transaction:
            # A signal has kept `_transaction` from ending what another one had interrupted.
            self._discard(role)
            connection = None
        if connection is None:
            if role == "_writer":
                self._known = Known()  # `data_version` only compares within one connection
                self._room = Room(self._path) if self._durability == "full" else None  # the other one does not sync
            connection = sqlite3.connect(
                self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            try:
                sqlite_schema.prepare(connection, self._path, self._timeout)
                connection.execute(f"PRAGMA synchronous={SYNCHRONOUS[self._durability]}")
            except BaseException:
                _roll_back(connection)
                connection.close()
                raise
            setattr(self, role, connection)
        return connection

    def _discard(self, role: str) -> None:
        connection: sqlite3.Connection | None = getattr(self, role)
        if role == "_writer":
            self._batch = None
        if connection is None:
            return
        # Closing would not end a transaction as long as anything refers to a cursor, as the frames of an error do: nobody could
        # write until they are gone.
        _roll_back(connection)
        setattr(self, role, None)
        with contextlib.suppress(sqlite3.Error):  # it is thrown away because it failed: failing again adds nothing
            connection.close()

    def _translated(self, doing: str) -> _Translated:
        return _Translated(self, doing)

    def _translate(self, error: Exception, doing: str) -> Exception:
        if not isinstance(error, FAILURES):
            return error
        text = str(error)
        if "locked" in text or "busy" in text:
            return StoreError(
                f"the store {self._path} can't be {doing}: another process has held its write lock for "
                f"{self._timeout:g} s. Find it (`fuser {self._path.name}`), or open with a longer `timeout`"
            )
        if "full" in text:
            return StoreError(
                f"the store {self._path} can't be {doing}: the disk is full. Free some space and save again; "
                "nothing that was saved before is lost"
            )
        if "unable to open" in text or "readonly" in text:
            return StoreError(f"the store {self._path} can't be {doing}: {self._why_not_opened(text)}")
        if isinstance(error, UnicodeDecodeError) or "malformed" in text or "not a database" in text:
            return CorruptError(
                f"the file {self._path} is damaged or not a SQLite database ({text}). Keep a copy; "
                "`sqlite3 FILE .recover` saves what can be read"
            )
        return StoreError(f"the store {self._path} can't be {doing}: {text}. Check the disk, then try again")

    def _why_not_opened(self, text: str) -> str:
        for place in (self._path, self._path.parent):
            if not os.access(place, os.W_OK):
                return (
                    f"{place} can't be written, as SQLite must even to read ({text}). Make the file and its directory writable, or "
                    "copy the store, with the files beside it, to where they are"
                )
        return f"{text}. Too many files may be open (`ulimit -n`), or the disk may fail: check both, then try again"


# Nothing of SQLite may cross a fork: the child would believe to hold locks that it does not. So all connections are
# closed before one, by the thread that forks, and come back when they are needed, on both sides.
_backends: WeakSet[SqliteBackend] = WeakSet()
_held_for_fork: list[SqliteBackend] = []


def _before_fork() -> None:
    for backend in sorted(_backends, key=id):
        backend._writing.acquire()
        backend._reading.acquire()
        backend._discard("_reader")
        backend._discard("_writer")
        _held_for_fork.append(backend)


def _after_fork() -> None:
    while _held_for_fork:
        backend = _held_for_fork.pop()
        backend._reading.release()
        backend._writing.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _roll_back(connection: sqlite3.Connection) -> None:
    """Ends a transaction, if there is one."""
    with contextlib.suppress(sqlite3.Error):  # whoever asks has an error to tell already
        connection.rollback()


def _end_of(prefix: bytes) -> bytes | None:
    """The first key that is greater than all that begin with the prefix, None if there is none."""
    rest = prefix.rstrip(b"\xff")
    return rest[:-1] + bytes((rest[-1] + 1,)) if rest else None


def _typed(row: tuple[Any, ...], types: tuple[type, ...]) -> tuple[Any, ...]:
    """A row with values of the types that were stored: a damaged page may give others, which SQLite does not mind."""
    if tuple(map(type, row)) != types:
        raise sqlite3.DatabaseError(MALFORMED)
    return row


class _Translated:
    """Turns what sqlite3 raises inside a `with` block into our errors."""

    def __init__(self, backend: SqliteBackend, doing: str) -> None:
        self._backend = backend
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FAILURES):
            raise self._backend._translate(error, self._doing) from error
