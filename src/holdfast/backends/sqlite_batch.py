"""Many commits in one SQLite transaction, with as few statements as there can be.

Nearly every commit is a plain save: a record, runs at the ends of logs, rows that are compared and set. Their conditions
are about what this process wrote last, so it remembers that (`Known`), and checks them without asking; their changes
are gathered and written with one statement a table; one that comes alone is written at once. `PRAGMA data_version` says,
once the write lock is held, whether anybody else has committed since: if so, what was remembered is forgotten.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.backends import sqlite_commit, sqlite_index
from holdfast.backends.port import ABSENT, ANY_VERSION, MAX_LOG_ELEMENTS, Commit, CommitConflict, RowKey
from holdfast.backends.sqlite_room import Room

REMEMBERED = 50_000
ROW_IS_GONE = "malformed: a row that was read is not there"


class Known:
    """What this process knows of the store, as of `data_version`: rows, logs' tails, sessions' numbers, and the number
    of the record that was written last."""

    def __init__(self) -> None:
        self.data_version: int | None = None
        self.rows: dict[RowKey, tuple[int, bytes | None]] = {}
        self.tails: dict[int, int] = {}
        self.sessions: dict[bytes, int] = {}
        self.last_record: int | None = None
        self.newest = sqlite_index.Newest()
        self.looked_up = 0  # rows, tails and sessions since it was forgotten: so many are remembered at most

    def forget(self) -> None:
        self.looked_up = 0
        self.rows.clear()
        self.tails.clear()
        self.sessions.clear()
        self.last_record = None
        self.newest.forget()


class Batch:
    """Transactions of one connection, one after the other. Raises `sqlite3.Error` when one can't be written,
    `sqlite3.IntegrityError` also when the records contradict the tables that lead to them: then all of it must be rolled
    back, this and `Known` be forgotten, and each commit be carried out alone."""

    def __init__(self, connection: sqlite3.Connection, known: Known, room: Room | None) -> None:
        self._connection = connection
        self._room = room
        self._cursor = connection.cursor()  # for all that is done each time: making one takes as long as BEGIN does
        self._known = known
        self._runs: list[tuple[int, int, bytes]] = []
        self._records: list[tuple[object, ...]] = []
        self._rows: dict[RowKey, tuple[int, bytes | None]] = {}
        self._new_rows: dict[RowKey, tuple[int, bytes | None]] = {}  # that the table does not have yet

    def carry_out(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        connection, known = self._connection, self._known
        execute = self._cursor.execute
        execute("BEGIN IMMEDIATE")
        data_version = execute("PRAGMA data_version").fetchone()[0]
        if data_version != known.data_version or known.looked_up > REMEMBERED:
            known.forget()
            known.data_version = data_version
        outcomes: list[BaseException | None] = []
        if len(commits) == 1 and self._add(commits[0]):
            outcomes.append(None)
        else:
            self._carry_out_each(commits, outcomes)
        last = known.last_record
        if last is not None and known.newest.is_due(last):
            known.newest.enter(connection, last)
        if self._room is not None:
            self._room.make()
        execute("COMMIT")
        return outcomes

    def _add(self, commit: Commit) -> bool:
        """Writes a plain commit, if all that its conditions are about is remembered, and holds. Else nothing is changed, and a
        closer look has to be taken."""
        known, record = self._known, commit.record
        tails, rows, n = known.tails, known.rows, known.last_record
        if record is None or n is None or record.replaces is not None or not _only_adds(commit):
            return False
        for log, first, _, _, tail in commit.runs:
            if first != tail or tails.get(log) != tail:
                return False
        for key, value, expect, was in commit.rows:
            now = rows.get(key)
            if now is None or value is None or now[0] != expect or expect == ABSENT or was not in (None, now[1]):
                return False
        session = known.sessions.get(record.session)
        if session is None or not known.newest.takes(record, session):
            return False
        execute = self._cursor.execute
        for log, first, length, data, _ in commit.runs:
            execute(sqlite_commit.PUT_RUN, (log * MAX_LOG_ELEMENTS + first, length, data))
            tails[log] = first + length
        known.last_record = n = n + 1
        execute(sqlite_commit.PUT_RECORD, sqlite_commit.record_columns(record, n, session))
        for key, value, version, _ in commit.rows:
            if execute(sqlite_commit.CHANGE_ROW, (version + 1, value, *key)).rowcount != 1:
                raise sqlite3.DatabaseError(ROW_IS_GONE)
            rows[key] = (version + 1, value)
        return True

    def _carry_out_each(self, commits: Sequence[Commit], outcomes: list[BaseException | None]) -> None:
        connection, known = self._connection, self._known
        for commit in commits:
            try:
                if _is_plain(commit):
                    self._gather(commit)
                else:
                    self._write()
                    known.last_record = sqlite_commit.carry_out(connection, commit, self._last_record())
                    self._forget(commit)
            except CommitConflict as conflict:
                outcomes.append(conflict)
            else:
                outcomes.append(None)
        self._write()

    def _gather(self, commit: Commit) -> None:
        connection, known = self._connection, self._known
        for run in commit.runs:
            tail = known.tails.get(run.log)
            if tail is None:
                known.looked_up += 1
                tail = known.tails[run.log] = sqlite_commit.tail_of(connection, run.log)
            if tail != run.tail:
                raise CommitConflict("run", run.log)
        versions = []
        for key, _, expect, was in commit.rows:
            now = known.rows.get(key)
            if now is None:
                known.looked_up += 1
                now = known.rows[key] = sqlite_commit.row_now(connection, key)
            version, value = now
            if (expect not in (version, ANY_VERSION)) or (was is not None and was != value):
                raise CommitConflict("row", key)
            versions.append(version)
        record = commit.record
        assert record is not None
        session = known.sessions.get(record.session)
        if session is None:
            known.looked_up += 1
            session = sqlite_commit.session_number(connection, record.session)
        if not known.newest.is_known:
            self._write()
            known.newest.look(connection)
        if not known.newest.is_above_all(connection, record, session):
            self._write()
            if sqlite_index.is_taken(connection, record, session):
                raise CommitConflict("record", record.id)

        for run in commit.runs:
            self._runs.append((run.log * MAX_LOG_ELEMENTS + run.first, run.length, run.data))
            known.tails[run.log] = run.first + run.length
        for write, version in zip(commit.rows, versions, strict=True):
            assert write.value is not None
            gathered = self._new_rows if version == ABSENT or write.key in self._new_rows else self._rows
            gathered[write.key] = known.rows[write.key] = (version + 1, write.value)
        if session is None:
            session = sqlite_commit.new_session(connection, record.session)
        known.sessions[record.session] = session
        known.newest.add(record, session)
        n = known.last_record = self._last_record() + 1
        self._records.append(sqlite_commit.record_columns(record, n, session))

    def _last_record(self) -> int:
        last = self._known.last_record
        return sqlite_commit.last_record(self._connection) if last is None else last

    def _write(self) -> None:
        """Writes what was gathered."""
        executemany = self._cursor.executemany
        if self._runs:
            executemany(sqlite_commit.PUT_RUN, self._runs)
            self._runs = []
        if self._records:
            executemany(sqlite_commit.PUT_RECORD, self._records)
            self._records = []
        if self._rows:
            cursor = executemany(sqlite_commit.CHANGE_ROW, [(*row, *key) for key, row in self._rows.items()])
            if cursor.rowcount != len(self._rows):
                raise sqlite3.DatabaseError(ROW_IS_GONE)
            self._rows = {}
        if self._new_rows:
            executemany(sqlite_commit.PUT_ROW, [(*key, *row) for key, row in self._new_rows.items()])
            self._new_rows = {}

    def _forget(self, commit: Commit) -> None:
        """What a commit of another kind has touched is looked up again when it is needed."""
        if commit.record is not None or commit.more_records:
            self._known.newest.forget()
        for run in commit.runs:
            self._known.tails.pop(run.log, None)
        for delete in commit.delete_runs:
            self._known.tails.pop(delete.log, None)
        for write in commit.rows:
            self._known.rows.pop(write.key, None)


def _is_plain(commit: Commit) -> bool:
    """Whether it only adds: a record, at most one run to each log's end, rows."""
    if commit.record is None or commit.record.replaces is not None or not _only_adds(commit):
        return False
    for run in commit.runs:
        if run.first != run.tail:
            return False
    for write in commit.rows:
        if write.value is None:
            return False
    return len(commit.runs) < 2 or len({run.log for run in commit.runs}) == len(commit.runs)


def _only_adds(commit: Commit) -> bool:
    """Whether there is nothing in it but a record, runs and rows."""
    return not (
        commit.blobs
        or commit.require
        or commit.require_rows
        or commit.more_records
        or commit.delete_records
        or commit.delete_runs
        or commit.delete_blobs
    )
