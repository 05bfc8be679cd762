"""Carrying out one commit inside a SQLite transaction: first every condition, then every change.

Conditions come first so that a refused commit has changed nothing and the transaction can go on with the next one.
"""

from __future__ import annotations

import sqlite3
import time

from holdfast.backends import sqlite_index
from holdfast.backends.port import (
    ABSENT,
    ANY_VERSION,
    MAX_LOG_ELEMENTS,
    Commit,
    CommitConflict,
    RecordWrite,
    RowKey,
    RunDelete,
    RunWrite,
)
from holdfast.backends.sqlite_pages import filling

PUT_RUN = "INSERT INTO run VALUES (?, ?, ?)"
PUT_BLOB = (
    "INSERT INTO blob (hash, written_at_us, data) VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET data = excluded.data, "
    # Later than before, whatever the clock says: collection must see that it was written again.
    "written_at_us = max(excluded.written_at_us, blob.written_at_us + 1)"
)
PUT_RECORD = (
    "INSERT INTO record (n, id, session, sequence, data, agent_id, framework, step_index, step_name, parent, "
    "created_at_us, expires_at_us, handoff_target) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
PUT_ROW = (
    "INSERT INTO row (space, key, tree, version, value) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET version = excluded.version, value = excluded.value"
)
# For a row that is known to be there: it is looked for once, where PUT_ROW does so twice.
CHANGE_ROW = "UPDATE row SET version = ?, value = ? WHERE space = ? AND key = ? AND tree = ?"


ROW = "SELECT value, version FROM row WHERE space = ? AND key = ? AND tree = ?"


def prepare(connection: sqlite3.Connection) -> None:
    """Has the connection prepare the statements of a plain save, which it keeps. Nothing is changed."""
    row_now(connection, RowKey("", b""))
    tail_of(connection, 0)
    session_number(connection, b"")
    last_record(connection)
    sqlite_index.prepare(connection)
    for statement in (PUT_RUN, PUT_RECORD, PUT_ROW, CHANGE_ROW):
        connection.executemany(statement, ())


def carry_out(connection: sqlite3.Connection, commit: Commit, last: int) -> int:
    """Carries out a commit of any kind, or raises `CommitConflict` before anything is changed. `last` is the number of the
    last record so far; returns that of the last one then."""
    ends: dict[int, int] = {}  # of the logs that this commit has begun to write
    for run in commit.runs:
        if not ends.get(run.log) == run.first == run.tail:
            _check_tail(connection, run)
        ends[run.log] = run.first + run.length
    for id_, prefix in commit.require:
        n = sqlite_index.number_of(connection, id_)
        found = connection.execute("SELECT substr(data, 1, ?) FROM record WHERE n = ?", (len(prefix), n)).fetchone()
        if found is None or (found[0] or b"") != prefix:  # of nothing, substr gives NULL
            raise CommitConflict("require", id_)
    for key, expected in commit.require_rows:
        if row_now(connection, key)[0] != expected:
            raise CommitConflict("row", key)
    if commit.record is not None:
        _check_record(connection, commit.record)
    for record in commit.more_records:
        _check_record(connection, record)
    versions = []
    for write in commit.rows:
        version, value = row_now(connection, write.key)
        if write.expect not in (ANY_VERSION, version) or write.was not in (None, value):
            raise CommitConflict("row", write.key)
        versions.append(version)

    for run in commit.runs:
        _write_run(connection, run)
    if commit.blobs:
        now = time.time_ns() // 1000
        connection.executemany(PUT_BLOB, [(hash_, now, data) for hash_, data in filling(commit.blobs)])
    if commit.record is not None:
        last += commit.record.replaces is None
        _write_record(connection, commit.record, last)
    for record in commit.more_records:
        last += record.replaces is None
        _write_record(connection, record, last)
    for write, version in zip(commit.rows, versions, strict=True):
        if write.value is None:
            connection.execute("DELETE FROM row WHERE space = ? AND key = ? AND tree = ?", write.key)
        else:
            connection.execute(PUT_ROW, (*write.key, version + 1, write.value))
    if commit.delete_records or commit.delete_runs or commit.delete_blobs:
        _delete(connection, commit)
    return last


def tail_of(connection: sqlite3.Connection, log: int) -> int:
    base = log * MAX_LOG_ELEMENTS
    last = connection.execute(
        "SELECT k, length FROM run WHERE k >= ? AND k < ? ORDER BY k DESC LIMIT 1", (base, base + MAX_LOG_ELEMENTS)
    ).fetchone()
    return last[0] - base + last[1] if last else 0


def row_now(connection: sqlite3.Connection, key: RowKey) -> tuple[int, bytes | None]:
    """The row's version and value; 0 and None if there is none."""
    found = connection.execute(ROW, key).fetchone()
    return (found[1], found[0]) if found else (ABSENT, None)


def session_number(connection: sqlite3.Connection, session: bytes) -> int | None:
    """The number of a session id, None if the store has not seen it."""
    found = connection.execute("SELECT n FROM session WHERE id = ?", (session,)).fetchone()
    return found[0] if found else None


def new_session(connection: sqlite3.Connection, session: bytes) -> int:
    number = connection.execute("INSERT INTO session (id) VALUES (?)", (session,)).lastrowid
    assert number is not None
    return number


def last_record(connection: sqlite3.Connection) -> int:
    """The highest number that any record has or had: a record's number is its position, and never given again."""
    found = connection.execute(
        "SELECT max(coalesce((SELECT max(n) FROM record), 0), coalesce((SELECT max(n) FROM deleted), 0))"
    ).fetchone()[0]
    if type(found) is not int:
        raise sqlite3.DatabaseError("malformed row: a record's number is no number")
    return found


def _check_tail(connection: sqlite3.Connection, run: RunWrite) -> None:
    if tail_of(connection, run.log) != run.tail:
        raise CommitConflict("run", run.log)
    begins = (run.log * MAX_LOG_ELEMENTS + run.first,)
    if run.first < run.tail and not connection.execute("SELECT 1 FROM run WHERE k = ?", begins).fetchone():
        raise CommitConflict("run", run.log)


def _write_run(connection: sqlite3.Connection, run: RunWrite) -> None:
    k = run.log * MAX_LOG_ELEMENTS + run.first
    if run.first < run.tail:
        connection.execute("DELETE FROM run WHERE k >= ? AND k < ?", (k, k - run.first + run.tail))
    connection.execute(PUT_RUN, (k, run.length, run.data))


def _check_record(connection: sqlite3.Connection, record: RecordWrite) -> None:
    if record.replaces is not None:
        n = sqlite_index.number_of(connection, record.id)
        found = connection.execute("SELECT data FROM record WHERE n = ?", (n,)).fetchone()
        if found is None or found[0] != record.replaces:
            raise CommitConflict("replace", record.id)
    elif sqlite_index.is_taken(connection, record, session_number(connection, record.session)):
        raise CommitConflict("record", record.id)


def _write_record(connection: sqlite3.Connection, record: RecordWrite, n: int) -> None:
    if record.replaces is not None:
        replaced = sqlite_index.number_of(connection, record.id)
        connection.execute("UPDATE record SET data = ? WHERE n = ?", (record.data, replaced))
        return
    session = session_number(connection, record.session) or new_session(connection, record.session)
    connection.execute(PUT_RECORD, record_columns(record, n, session))


def record_columns(record: RecordWrite, n: int, session: int) -> tuple[object, ...]:
    """The values of `PUT_RECORD`."""
    id_, _, sequence, data, labels, expires_at_us, _, _ = record
    if labels is None:
        return (n, id_, session, sequence, data, None, None, None, None, None, None, expires_at_us, None)
    agent_id, framework, step_index, step_name, parent, created_at_us, target = labels
    if not agent_id.isascii():
        agent_id = _label(agent_id)
    if step_name is not None and not step_name.isascii():
        step_name = _label(step_name)
    if target is not None:
        target = _label(target)
    return (
        n, id_, session, sequence, data, agent_id, framework, step_index, step_name, parent, created_at_us,
        expires_at_us, target,
    )  # fmt: skip


def _label(text: str) -> str:
    """Text as SQLite can show it: lone surrogates, which the record itself keeps exactly, become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _delete(connection: sqlite3.Connection, commit: Commit) -> None:
    if commit.delete_records:
        _delete_records(connection, commit)
    for delete in commit.delete_runs:
        _delete_run(connection, delete)
    for hash_, written_before in commit.delete_blobs.items():
        connection.execute("DELETE FROM blob WHERE hash = ? AND written_at_us < ?", (hash_, written_before))


def _delete_records(connection: sqlite3.Connection, commit: Commit) -> None:
    last = last_record(connection)
    for id_, data in commit.delete_records:
        n = sqlite_index.number_of(connection, id_)
        connection.execute("DELETE FROM record WHERE n = ? AND data = ?", (n, data))
    if last_record(connection) < last:  # the table no longer tells which numbers were given out: now it is written down
        connection.execute("DELETE FROM deleted")
        connection.execute("INSERT INTO deleted VALUES (?)", (last,))


def _delete_run(connection: sqlite3.Connection, delete: RunDelete) -> None:
    base = delete.log * MAX_LOG_ELEMENTS
    deleted = connection.execute("DELETE FROM run WHERE k = ? AND length = ?", (base + delete.first, delete.length))
    if deleted.rowcount:
        for first, length, data in delete.pieces:
            connection.execute(PUT_RUN, (base + first, length, data))
