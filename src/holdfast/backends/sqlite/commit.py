"""SQLite transactions: commits that arrive together, each with all conditions before its changes.

A refused commit has changed nothing, so the transaction continues with the next one.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from holdfast.backends.port import (
    ABSENT,
    ANY_VERSION,
    MAX_LOG_ELEMENTS,
    Commit,
    CommitConflict,
    RecordWrite,
    RowKey,
    SegmentDelete,
    SegmentWrite,
)
from holdfast.backends.sqlite import record_queries

PUT_SEGMENT = "INSERT INTO run VALUES (?, ?, ?)"
PUT_BLOB = (
    "INSERT INTO blob (hash, written_at_us, data) VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET data = "
    "excluded.data, "
    # Later than before, even if the clock stands still: gc must see that it was written again.
    "written_at_us = max(excluded.written_at_us, blob.written_at_us + 1)"
)
PUT_RECORD = (
    "INSERT INTO record (n, id, session, sequence, data, agent_id, framework, step_index, step_name, parent, "
    "created_at_us, expires_at_us, handoff_target, feed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
PUT_ROW = (
    "INSERT INTO row (space, key, tree, version, value) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET version = excluded.version, value = excluded.value"
)
ROW = "SELECT value, version FROM row WHERE space = ? AND key = ? AND tree = ?"


def prepare(connection: sqlite3.Connection) -> None:
    """Prepare the statements of a save, which the connection caches. Nothing is changed."""
    row_now(connection, RowKey("", b""))
    tail_of(connection, 0)
    session_number(connection, b"")
    last_record(connection)
    connection.execute(record_queries.IS_TAKEN, (b"", 0, 0)).fetchone()
    connection.execute(record_queries.BEGINNING_OF_ID, (b"", 0)).fetchone()
    for statement in (PUT_SEGMENT, PUT_RECORD, PUT_ROW):
        connection.executemany(statement, ())


def commit_group(connection: sqlite3.Connection, commits: Sequence[Commit]) -> list[BaseException | None]:
    """Write commits in one transaction; return for each its `CommitConflict`, or None.

    Raise `sqlite3.Error` when the transaction can't be written: the caller rolls it back.
    """
    connection.execute("BEGIN IMMEDIATE")
    last = last_record(connection)
    outcomes: list[BaseException | None] = []
    for commit in commits:
        try:
            last = apply(connection, commit, last)
        except CommitConflict as conflict:
            outcomes.append(conflict)
        else:
            outcomes.append(None)
    connection.execute("COMMIT")
    return outcomes


def apply(connection: sqlite3.Connection, commit: Commit, last: int) -> int:
    """Apply a commit, or raise `CommitConflict` before anything is changed.

    `last` is the number of the last record so far; return that of the last one afterwards.
    """
    ends: dict[int, int] = {}  # of the logs that this commit writes to
    for segment in commit.segments:
        if not ends.get(segment.log) == segment.first == segment.tail:
            _check_tail(connection, segment)
        ends[segment.log] = segment.first + segment.length
    for id_, prefix in commit.require:
        found = connection.execute(record_queries.BEGINNING_OF_ID, (id_, len(prefix))).fetchone()
        if found is None or (found[0] or b"") != prefix:  # of nothing, substr gives NULL
            raise CommitConflict("require", id_)
    for key, expected in commit.require_rows:
        if row_now(connection, key)[0] != expected:
            raise CommitConflict("row", key)
    records = commit.list_records()
    sessions = [_check_record(connection, record) for record in records]
    versions = []
    for write in commit.rows:
        version, value = row_now(connection, write.key)
        if write.expect not in (ANY_VERSION, version) or write.was not in (None, value):
            raise CommitConflict("row", write.key)
        versions.append(version)

    for segment in commit.segments:
        _write_run(connection, segment)
    if commit.blobs:
        now = time.time_ns() // 1000
        connection.executemany(PUT_BLOB, [(hash_, now, data) for hash_, data in commit.blobs.items()])
    for record, session in zip(records, sessions, strict=True):
        last += record.replaces is None
        _write_record(connection, record, last, session)
    for write, version in zip(commit.rows, versions, strict=True):
        if write.value is None:
            connection.execute("DELETE FROM row WHERE space = ? AND key = ? AND tree = ?", write.key)
        else:
            connection.execute(PUT_ROW, (*write.key, version + 1, write.value))
    if commit.delete_records or commit.delete_segments or commit.delete_blobs:
        _delete(connection, commit)
    return last


def tail_of(connection: sqlite3.Connection, log: int) -> int:
    base = log * MAX_LOG_ELEMENTS
    last = connection.execute(
        "SELECT k, length FROM run WHERE k >= ? AND k < ? ORDER BY k DESC LIMIT 1", (base, base + MAX_LOG_ELEMENTS)
    ).fetchone()
    return last[0] - base + last[1] if last else 0


def row_now(connection: sqlite3.Connection, key: RowKey) -> tuple[int, bytes | None]:
    """Return the row's version and value; 0 and None if there is none."""
    found = connection.execute(ROW, key).fetchone()
    return (found[1], found[0]) if found else (ABSENT, None)


def session_number(connection: sqlite3.Connection, session: bytes) -> int | None:
    """Return the number of a session id, None if the store has not seen it."""
    found = connection.execute("SELECT n FROM session WHERE id = ?", (session,)).fetchone()
    return found[0] if found else None


def new_session(connection: sqlite3.Connection, session: bytes) -> int:
    number = connection.execute("INSERT INTO session (id) VALUES (?)", (session,)).lastrowid
    assert number is not None
    return number


def last_record(connection: sqlite3.Connection) -> int:
    """Return the highest number that any record has or had.

    A record's number is its position, and never given again.
    """
    found = connection.execute(
        "SELECT max(coalesce((SELECT max(n) FROM record), 0), coalesce((SELECT max(n) FROM deleted), 0))"
    ).fetchone()[0]
    if type(found) is not int:
        raise sqlite3.DatabaseError("malformed row: a record's number is no number")
    return found


def _check_tail(connection: sqlite3.Connection, segment: SegmentWrite) -> None:
    if tail_of(connection, segment.log) != segment.tail:
        raise CommitConflict("segment", segment.log)
    begins = (segment.log * MAX_LOG_ELEMENTS + segment.first,)
    if segment.first < segment.tail and not connection.execute("SELECT 1 FROM run WHERE k = ?", begins).fetchone():
        raise CommitConflict("segment", segment.log)


def _write_run(connection: sqlite3.Connection, segment: SegmentWrite) -> None:
    k = segment.log * MAX_LOG_ELEMENTS + segment.first
    if segment.first < segment.tail:
        connection.execute("DELETE FROM run WHERE k >= ? AND k < ?", (k, k - segment.first + segment.tail))
    connection.execute(PUT_SEGMENT, (k, segment.length, segment.data))


def _check_record(connection: sqlite3.Connection, record: RecordWrite) -> int | None:
    """Return the number of the record's session, None for a new session.

    Raise `CommitConflict` if the record can't be written.
    """
    session = session_number(connection, record.session)
    if record.replaces is not None:
        found = connection.execute(record_queries.DATA_OF_ID, (record.id,)).fetchone()
        if found is None or found[0] != record.replaces:
            raise CommitConflict("replace", record.id)
    elif connection.execute(record_queries.IS_TAKEN, (record.id, session, record.sequence)).fetchone():
        raise CommitConflict("record", record.id)
    return session


def _write_record(connection: sqlite3.Connection, record: RecordWrite, n: int, session: int | None) -> None:
    if record.replaces is not None:
        connection.execute(
            "UPDATE record SET data = ? WHERE id = ? AND data = ?", (record.data, record.id, record.replaces)
        )
        return
    if session is None:  # asked again: an earlier record of the same commit may have created it
        session = session_number(connection, record.session) or new_session(connection, record.session)
    connection.execute(PUT_RECORD, record_columns(record, n, session))


def record_columns(record: RecordWrite, n: int, session: int) -> tuple[object, ...]:
    """Return the values of `PUT_RECORD`."""
    id_, _, sequence, data, labels, expires_at_us, _, _, feed = record
    if labels is None:
        return (n, id_, session, sequence, data, None, None, None, None, None, None, expires_at_us, None, feed)
    agent_id, framework, step_index, step_name, parent, created_at_us, target = labels
    if not agent_id.isascii():
        agent_id = _label(agent_id)
    if step_name is not None and not step_name.isascii():
        step_name = _label(step_name)
    if target is not None:
        target = _label(target)
    return (
        n, id_, session, sequence, data, agent_id, framework, step_index, step_name, parent, created_at_us,
        expires_at_us, target, feed,
    )  # fmt: skip


def _label(text: str) -> str:
    """Return text as SQLite can show it.

    Lone surrogates, which the record itself keeps exactly, become question marks.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _delete(connection: sqlite3.Connection, commit: Commit) -> None:
    if commit.delete_records:
        _delete_records(connection, commit)
    for delete in commit.delete_segments:
        _delete_run(connection, delete)
    for hash_, written_before in commit.delete_blobs.items():
        connection.execute("DELETE FROM blob WHERE hash = ? AND written_at_us < ?", (hash_, written_before))


def _delete_records(connection: sqlite3.Connection, commit: Commit) -> None:
    last = last_record(connection)
    connection.executemany("DELETE FROM record WHERE id = ? AND data = ?", commit.delete_records)
    if last_record(connection) < last:  # the table no longer tells which numbers were given out: now it is written down
        connection.execute("DELETE FROM deleted")
        connection.execute("INSERT INTO deleted VALUES (?)", (last,))


def _delete_run(connection: sqlite3.Connection, delete: SegmentDelete) -> None:
    base = delete.log * MAX_LOG_ELEMENTS
    deleted = connection.execute("DELETE FROM run WHERE k = ? AND length = ?", (base + delete.first, delete.length))
    if deleted.rowcount:
        for first, length, data in delete.pieces:
            connection.execute(PUT_SEGMENT, (base + first, length, data))
