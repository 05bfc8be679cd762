"""The SQLite backend, the default: one file, no server, safe with many threads and processes.

WAL, `synchronous=FULL` (a commit survives a power cut) or NORMAL for `durability="fast"` (it
survives `kill -9`; a power cut may lose the last commits, never tear one). Writers take the write
lock at once (`BEGIN IMMEDIATE`) and wait for each other; commits that arrive together share one
transaction, so one fsync. The WAL is never truncated in service: reusing it saves 40 % of a commit.

Opening and reading change nothing: the first commit converts a store in another journal mode or of
an older schema (`schema.py`). A commit is acknowledged only if the file is still at its path
(`file_identity.py`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from threading import get_ident
from typing import Any, TypeVar
from weakref import WeakSet

from holdfast.backends.local_path import absolute
from holdfast.backends.port import (
    MAX_LOG_ELEMENTS,
    BlobInfo,
    Capabilities,
    Change,
    Commit,
    Record,
    Row,
    RowKey,
    Segment,
    SegmentInfo,
    Span,
    Usage,
    end_of_prefix,
)
from holdfast.backends.sqlite import commit as sqlite_commit
from holdfast.backends.sqlite import record_queries, schema
from holdfast.backends.sqlite.call_limits import CallLimit
from holdfast.backends.sqlite.errors import FAILURES, translate
from holdfast.backends.sqlite.file_identity import StoreFiles
from holdfast.backends.sqlite.hot_journal import HotJournalError, refuse_hot_journal, rolled_back_copy
from holdfast.backends.sqlite.row_checks import FIRST, MALFORMED, check_order, check_types
from holdfast.errors import StoreError, UsageError

T = TypeVar("T")
SYNCHRONOUS = {"full": "FULL", "fast": "NORMAL"}
RECORD_TYPES = (bytes, bytes, int, bytes)
MANY_BLOBS = {
    count: f"SELECT hash, data FROM blob WHERE hash IN ({', '.join('?' * count)})" for count in (64, 16)
}  # as many as one statement asks for
LAST_TREE = b"\xff" * 17  # after all trees, which have 16 bytes at most
ATTEMPTS = 3  # to open a file that is replaced meanwhile


def open_url(url: str, **options: Any) -> SqliteBackend:
    """Open `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`."""
    prefix = "sqlite:///"
    if not url.startswith(prefix) or len(url) == len(prefix):
        raise UsageError(
            f"{url!r} is not a SQLite store: the URL is 'sqlite:///relative.db' or 'sqlite:////absolute/path.db'"
        )
    if "?" in url:
        raise UsageError(
            f"{url!r} has a '?': options are given beside the URL, as in Client.open(url, durability='fast'). A file "
            "with such a name is opened by its path: Client.sqlite(path)"
        )
    return SqliteBackend(url.removeprefix(prefix), **options)


class SqliteBackend:
    def __init__(self, path: str | os.PathLike[str], *, durability: str = "full", timeout: float = 30.0) -> None:
        if durability not in SYNCHRONOUS:
            raise UsageError(f"durability is {durability!r}: SQLite offers 'full' (the default) and 'fast'")
        if str(path) == ":memory:":  # each connection would have a database of its own
            raise UsageError(
                "a SQLite store is a file, and ':memory:' is none: for a store that is gone with the process use "
                "Client.memory(), or the URL 'memory://'"
            )
        self._path = absolute(path)  # connections are opened later, too, when the process may be in another directory
        self._durability = durability
        self._timeout = timeout
        self._closed = False
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._only_thread: int | None = 0  # the only thread that has called so far; 0: none has, None: several have
        self._is_set_up = False  # the writer has checked or set up the file
        self._has_written = False
        self._version = schema.SCHEMA  # of the file's schema, when it was last checked
        self._limits = {role: CallLimit(self._path) for role in ("_writer", "_reader")}
        self._real = Path(os.path.realpath(self._path))  # SQLite's own files are next to the target of a link
        self._files = StoreFiles(self._path)
        is_empty = self._files.make()
        with _registering:
            _backends.add(self)
        with self._writing, self._translate_errors("opened"):
            with contextlib.suppress(HotJournalError):
                self._get_connection("_writer")  # now, not in the first save
            if is_empty:
                self._get_writing_connection()

    @cached_property  # each save asks for them
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="sqlite",
            durability=self._durability,
            location=str(self._path),
            directory=str(self._path.parent),
            timeout=self._timeout,
            feeds=True,
        )

    # -- writing -----------------------------------------------------------------------------------------------------

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        self._is_shared()  # a thread that only writes counts, too: no other may then read by its connection
        with self._writing:
            self._limits["_writer"].begin(writing=True)
            try:
                return self._transaction(commits)
            except Exception as error:
                if len(commits) == 1:
                    return [self._translate(error, "written")]
            # One of them can't be written as it is: each gets a transaction of its own, so that it fails alone.
            return [self._commit_alone(commit) for commit in commits]

    def _commit_alone(self, commit: Commit) -> BaseException | None:
        try:
            [outcome] = self._transaction([commit])
        except Exception as error:
            return self._translate(error, "written")
        return outcome

    def _transaction(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        """Return the outcome of each commit: a `StoreError` if its file is no longer at its path."""
        connection = self._get_writing_connection()
        try:
            outcomes = sqlite_commit.commit_group(connection, commits)
        except sqlite3.IntegrityError:
            connection.execute("ROLLBACK")
            raise
        except BaseException:
            # After a failed fsync the state of the connection is unknown: the next commit opens a new one.
            self._discard("_writer")
            raise
        # After the commit: a later change of the file happens to a save that was there.
        try:
            self._files.check()
        except StoreError as error:
            self._discard("_writer")
            return [StoreError(str(error)) if outcome is None else outcome for outcome in outcomes]
        return outcomes

    # -- reading -----------------------------------------------------------------------------------------------------

    def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        def read(connection: sqlite3.Connection) -> list[Record | None]:
            found = (connection.execute(record_queries.RECORD_OF_ID, (id_,)).fetchone() for id_ in ids)
            return [Record(*check_types(row, RECORD_TYPES)) if row else None for row in found]

        return self._read(read)

    def session_records(self, session: bytes, *, before: int | None = None, limit: int | None = None) -> list[Record]:
        def read(connection: sqlite3.Connection) -> list[Record]:
            end = 2**62 if before is None else before
            rows = connection.execute(record_queries.OF_SESSION, (session, end, -1 if limit is None else limit))
            typed = (check_types(row, RECORD_TYPES) for row in rows)
            return [Record(*row) for row in check_order(typed, lambda row: -row[2], -end)]

        return self._read(read)

    def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        def read(connection: sqlite3.Connection) -> list[bytes]:
            whole = bytes.fromhex(ending[len(ending) % 2 :])
            rows = connection.execute(
                record_queries.IDS_BY_ENDING if len(whole) >= 4 else record_queries.IDS_BY_SHORT_ENDING,
                (-len(whole) if whole else 17, whole, ending.lower(), limit),
            )
            return [check_types(row, (bytes,))[0] for row in rows]

        if not all(digit in "0123456789abcdefABCDEF" for digit in ending):
            return []
        return self._read(read)

    def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        def read(connection: sqlite3.Connection) -> list[list[Segment]]:
            found = []
            for log, first, end in spans:
                base = log * MAX_LOG_ELEMENTS
                rows = connection.execute(
                    "SELECT k, length, data FROM run WHERE k < ?3 AND k >= "
                    "coalesce((SELECT max(k) FROM run WHERE k >= ?1 AND k <= ?2), ?2) ORDER BY k",
                    (base, base + first, base + end),
                )
                of_span, before = [], -1
                for k, length, data in rows:
                    # As in `check_types` and `check_order`, without a call: there are many small segments.
                    if type(k) is not int or type(length) is not int or type(data) is not bytes or k <= before:
                        raise sqlite3.DatabaseError(MALFORMED)
                    before = k
                    if k - base + length > first:
                        of_span.append(Segment(k - base, length, data))
                found.append(of_span)
            return found

        return self._read(read)

    def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        def read(connection: sqlite3.Connection) -> list[bytes | None]:
            found: dict[bytes, bytes] = {}
            at = 0
            # A statement takes and releases a lock: for many blobs, that costs more than finding them.
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
            return [Row(*check_types(row, (bytes, int))) if row else None for row in found]

        return self._read(read)

    def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        def read(connection: sqlite3.Connection) -> list[tuple[RowKey, Row]]:
            # Plain bounds, so that SQLite seeks the first one and stops after the last one.
            bounds, values = "key >= ?", [space, prefix]
            if after is not None and after >= prefix:
                bounds, values = "key > ?", [space, after]
            if (end := end_of_prefix(prefix)) is not None:
                bounds, values = f"{bounds} AND key < ?", [*values, end]
            if tree is not None:
                bounds, values = f"{bounds} AND tree = ?", [*values, tree]
            rows = connection.execute(
                f"SELECT key, tree, value, version FROM row WHERE space = ? AND {bounds} ORDER BY key, tree LIMIT ?",
                (*values, -1 if limit is None else limit),
            )
            typed = (check_types(row, (bytes, bytes, bytes, int)) for row in rows)
            found = check_order(typed, lambda row: row[:2], () if after is None else (after, LAST_TREE))
            return [(RowKey(space, key, of_tree), Row(value, version)) for key, of_tree, value, version in found]

        return self._read(read)

    def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        def read(connection: sqlite3.Connection) -> list[Record]:
            rows = connection.execute(record_queries.BY_ID, (after or b"", limit))
            typed = (check_types(row, RECORD_TYPES) for row in rows)
            return [Record(*row) for row in check_order(typed, FIRST, after or b"")]

        return self._read(read)

    def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
        def read(connection: sqlite3.Connection) -> list[Change]:
            if feed is not None and schema.version_of(connection) < schema.FEEDS_SINCE:
                return []
            # `n` is the key that the table is stored by: without news, this reads its last page only.
            query, values = f"{record_queries.CHANGES} WHERE record.n > ? ORDER BY record.n LIMIT ?", (after, limit)
            rows = (
                connection.execute(query, values)
                if feed is None
                else connection.execute(record_queries.OF_FEED, (feed, *values))
            )
            typed = (check_types(row, (int, *RECORD_TYPES)) for row in rows)
            return [_change(row) for row in check_order(typed, FIRST, after)]

        return self._read(read)

    def recent(self, before: int | None, limit: int) -> list[Change]:
        def read(connection: sqlite3.Connection) -> list[Change]:
            rows = connection.execute(
                f"{record_queries.CHANGES} WHERE record.n < ? ORDER BY record.n DESC LIMIT ?",
                (before or 2**63 - 1, limit),
            )
            typed = (check_types(row, (int, *RECORD_TYPES)) for row in rows)
            return [_change(row) for row in check_order(typed, lambda row: -row[0], -(2**63))]

        return self._read(read)

    def last_change(self) -> int:
        return self._read(sqlite_commit.last_record)

    def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        def read(connection: sqlite3.Connection) -> list[SegmentInfo]:
            start = -1 if after is None else after[0] * MAX_LOG_ELEMENTS + after[1]
            rows = connection.execute(
                "SELECT k, length, length(data) FROM run WHERE k > ? ORDER BY k LIMIT ?", (start, limit)
            )
            typed = check_order((check_types(row, (int, int, int)) for row in rows), FIRST, start)
            return [SegmentInfo(k // MAX_LOG_ELEMENTS, k % MAX_LOG_ELEMENTS, length, size) for k, length, size in typed]

        return self._read(read)

    def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        def read(connection: sqlite3.Connection) -> list[BlobInfo]:
            rows = connection.execute(
                "SELECT hash, length(data), written_at_us FROM blob WHERE hash > ? ORDER BY hash LIMIT ?",
                (after or b"", limit),
            )
            typed = (check_types(row, (bytes, int, int)) for row in rows)
            return [BlobInfo(*row) for row in check_order(typed, FIRST, after or b"")]

        return self._read(read)

    def usage(self) -> Usage:
        def read(connection: sqlite3.Connection) -> Usage:
            counts, sizes = {}, {}
            for kind, table, column in (
                ("record", "record", "data"),
                ("segment", "run", "data"),
                ("blob", "blob", "data"),
                ("row", "row", "value"),
            ):
                counts[f"{kind}s"], sizes[f"{kind}_bytes"] = connection.execute(
                    f"SELECT count(*), coalesce(sum(length({column})), 0) FROM {table}"
                ).fetchone()
            return Usage(**counts, **sizes, total_bytes=self._bytes_on_disk())

        return self._read(read)

    def _bytes_on_disk(self) -> int:
        files = (Path(f"{self._path}{suffix}") for suffix in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    # -- life --------------------------------------------------------------------------------------------------------

    def get_ready(self) -> None:
        """Prepare the statements of a save, which takes as long as executing them."""
        self.rows([RowKey("", b"")])
        self.records([b""])
        self.segments([Span(0, 0, 0)])
        with self._writing, self._translate_errors("opened"):
            self._limits["_writer"].begin()
            try:
                connection = self._get_connection("_writer")
            except HotJournalError:
                return
            if schema.is_current(connection):  # else the first save upgrades it: until then nothing is changed
                sqlite_commit.prepare(connection)

    def compact(self) -> None:
        with self._writing, self._translate_errors("compacted"):
            self._limits["_writer"].begin(writing=True)
            connection = self._get_writing_connection()
            free = connection.execute("PRAGMA freelist_count").fetchone()[0]
            if free:
                connection.execute("VACUUM")
            self._files.check()

    def close(self) -> None:
        with self._writing, self._reading:
            self._closed = True
            self._discard("_reader")
            self._discard("_writer")

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query on the writer's connection while one thread does everything, else on a reader's.

        A single thread reads by its own writing connection: that is open and has the pages that it
        wrote in its cache. With several threads, readers have a connection of their own, and wait
        for no writer. Nor does a signal handler that reads in the middle of a commit.
        """
        if self._is_shared() or self._writing.locked():
            with self._reading, self._translate_errors("read"):
                try:
                    return self._ask(query, "_reader")
                except BaseException:  # as below
                    self._discard("_reader")
                    raise
        # By `with`, and not by a non-blocking acquire: no signal comes between taking and releasing it.
        with self._writing, self._translate_errors("read"):
            try:
                return self._ask(query, "_writer")
            except BaseException:
                # The error may keep a statement open, which then holds an old snapshot: once another process
                # writes, that connection can't. So it is closed.
                self._discard("_writer")
                raise

    def _ask(self, query: Callable[[sqlite3.Connection], T], role: str) -> T:
        limit = self._limits[role]
        limit.begin()
        try:
            connection = self._get_connection(role)
        except HotJournalError:
            with contextlib.closing(rolled_back_copy(self._real, limit.attach)) as copy:
                return query(copy)
        self._files.check_sometimes()
        if self._version != schema.SCHEMA and self._version != schema.version_of(connection):
            self._discard(role)  # a writer has upgraded it
            connection = self._get_connection(role)
        if self._version >= schema.READ_IN_PLACE:
            return query(connection)
        with contextlib.closing(schema.upgraded_copy(connection, limit.attach)) as copy:
            return query(copy)

    def _is_shared(self) -> bool:
        """Return whether more than one thread has called."""
        me = get_ident()
        if self._only_thread != me:
            self._only_thread = me if self._only_thread == 0 else None
        return self._only_thread is None

    def _get_connection(self, role: str, *, writing: bool = False) -> sqlite3.Connection:
        """Return the connection of a role; open one if there is none.

        Unless it is for writing, raise `HotJournalError` if that would change the file.
        """
        if self._closed:
            raise StoreError(f"the store {self._path} was closed: open a new client")
        connection: sqlite3.Connection | None = getattr(self, role)
        if connection is not None and connection.in_transaction:
            # A signal kept `_transaction` from ending what another one had interrupted.
            self._discard(role)
            connection = None
        if connection is None:
            connection = self._connect(self._limits[role], writing=writing)
            setattr(self, role, connection)
        return connection

    def _connect(self, limit: CallLimit, *, writing: bool) -> sqlite3.Connection:
        for _ in range(ATTEMPTS):
            before = self._files.begin()
            if not writing:
                refuse_hot_journal(self._real)
            # `rw`: a file that is gone by now is not created again.
            connection = sqlite3.connect(
                f"{self._path.as_uri()}?mode=rw",
                timeout=self._timeout,
                isolation_level=None,
                check_same_thread=False,
                uri=True,
            )
            try:
                limit.attach(connection)
                self._version = schema.check(connection, self._path)
                if self._files.is_opened(before):
                    if schema.is_in_wal_mode(connection):
                        self._files.remember_wal()
                    connection.execute(f"PRAGMA synchronous={SYNCHRONOUS[self._durability]}")
                    return connection
            except BaseException:
                _roll_back(connection)
                self._close(connection)
                raise
            self._close(connection)
        raise StoreError(f"the store {self._path} can't be opened: another program replaces the file again and again")

    def _get_writing_connection(self) -> sqlite3.Connection:
        """Return the writer's connection, to a file that is set up for writing."""
        connection = self._get_connection("_writer", writing=True)
        if not self._is_set_up:
            try:
                schema.set_up(connection, self._timeout)
                if schema.is_in_wal_mode(connection):
                    self._files.remember_wal()
            except BaseException:
                self._discard("_writer")
                raise
            self._version = schema.SCHEMA
            self._is_set_up = self._has_written = True
        return connection

    def _discard(self, role: str) -> None:
        connection: sqlite3.Connection | None = getattr(self, role)
        if role == "_writer":
            self._is_set_up = False
        if connection is None:
            return
        # Closing does not end a transaction while anything refers to a cursor, as the frames of an error
        # do: until they are gone, no process could write.
        _roll_back(connection)
        setattr(self, role, None)
        with contextlib.suppress(sqlite3.Error):  # it is closed because it failed: a second failure adds nothing
            self._close(connection)
        if self._writer is None and self._reader is None:
            self._files.forget_wal()

    def _close(self, connection: sqlite3.Connection) -> None:
        if self._has_written or self._files.has_empty_wal():
            connection.close()
        else:
            self._close_unchanged(connection)

    def _close_unchanged(self, connection: sqlite3.Connection) -> None:
        """Close a connection that has only read, without changing the file.

        The last connection to close checkpoints the WAL, which changes the file. So a read-only
        connection is closed after it.
        """
        last = None
        try:
            last = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True, timeout=0, check_same_thread=False)
            last.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error:  # the file is gone or damaged: SQLite checkpoints nothing then
            pass
        finally:
            connection.close()
            if last is not None:
                last.close()

    def _translate_errors(self, doing: str) -> _ErrorTranslation:
        return _ErrorTranslation(self, doing)

    def _translate(self, error: Exception, doing: str) -> Exception:
        return translate(error, self._path, doing, self._timeout)


# Nothing of SQLite may cross a fork: the child would believe to hold locks that it does not, and a mutex of
# the library that another thread held would stay locked in it. So the forking thread lets no store be opened,
# waits for all calls, and closes all connections; they are reopened on demand, on both sides.
_backends: WeakSet[SqliteBackend] = WeakSet()
_registering = threading.Lock()
_held_for_fork: list[threading.Lock] = []


def _before_fork() -> None:
    _hold_for_fork(_registering)
    for backend in sorted(_backends, key=id):
        _hold_for_fork(backend._writing)
        _hold_for_fork(backend._reading)
        backend._discard("_reader")
        backend._discard("_writer")


def _hold_for_fork(lock: threading.Lock) -> None:
    lock.acquire()
    _held_for_fork.append(lock)


def _after_fork() -> None:
    held = _held_for_fork.copy()
    _held_for_fork.clear()  # before `_registering` is released, the first in the list: another thread may fork next
    for lock in reversed(held):
        lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction, if there is one."""
    with contextlib.suppress(sqlite3.Error):  # the caller has an error to raise already
        connection.rollback()


def _change(row: tuple[Any, ...]) -> Change:
    position, *columns = row
    return Change(position, Record(*columns))


class _ErrorTranslation:
    """A `with` block that translates errors of sqlite3 into ours."""

    def __init__(self, backend: SqliteBackend, doing: str) -> None:
        self._backend = backend
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FAILURES):
            raise self._backend._translate(error, self._doing) from error
