"""Carrying out one commit inside a SQLite transaction: first every condition, then every change.

Conditions come first so that a refused commit has changed nothing and the transaction can go on with the next one.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping

from holdfast.backends.port import (
    ABSENT,
    ANY_VERSION,
    MAX_LOG_ELEMENTS,
    Commit,
    CommitConflict,
    RecordWrite,
    RowKey,
    RowWrite,
    RunDelete,
    RunWrite,
)


class Doubtful(Exception):  # noqa: N818 - a signal to the transaction, not an error people see
    """A quick commit met something only a careful one can judge. The transaction must be rolled back."""


def carry_out(
    connection: sqlite3.Connection,
    commit: Commit,
    known: Mapping[bytes, int],
    learned: dict[bytes, int],
    *,
    careful: bool,
) -> None:
    """Carries out a commit, or raises `CommitConflict` before anything is changed.

    `known` are numbers of session ids that are committed; `learned` takes those that are once this transaction is.
    Unless `careful`, a new record's id is not looked up first: the index finds out, and `Doubtful` is raised.
    """
    ends: dict[int, int] = {}  # of the logs that this commit has begun to write
    for run in commit.runs:
        if not ends.get(run.log) == run.first == run.tail:
            _check_tail(connection, run)
        ends[run.log] = run.first + run.length
    for id_, prefix in commit.require:
        found = connection.execute("SELECT substr(data, 1, ?) FROM record WHERE id = ?", (len(prefix), id_)).fetchone()
        if found is None or found[0] != prefix:
            raise CommitConflict("require", id_)
    session = None
    if commit.record is not None:
        session = _session_number(connection, commit.record, known, learned)
        if careful or commit.record.replaces is not None:
            _check_record(connection, commit.record, session)
    if len(commit.rows) == 1:
        _compare_and_set(connection, commit.rows[0])  # the last condition and the first change in one statement
    else:
        versions = [_checked_version(connection, write) for write in commit.rows]
        for write, version in zip(commit.rows, versions, strict=True):
            _write_row(connection, write, version)

    for run in commit.runs:
        _write_run(connection, run)
    for hash_, data in commit.blobs.items():
        connection.execute(
            "INSERT INTO blob (hash, written_at_us, data) VALUES (?, ?, ?) "
            "ON CONFLICT (hash) DO UPDATE SET written_at_us = excluded.written_at_us, data = excluded.data",
            (hash_, time.time_ns() // 1000, data),
        )
    if commit.record is not None:
        try:
            _write_record(connection, commit.record, session)
        except sqlite3.IntegrityError as error:
            raise Doubtful from error
    if commit.delete_records or commit.delete_runs or commit.delete_blobs:
        _delete(connection, commit)


def _check_tail(connection: sqlite3.Connection, run: RunWrite) -> None:
    base = run.log * MAX_LOG_ELEMENTS
    last = connection.execute(
        "SELECT k, length FROM run WHERE k >= ? AND k < ? ORDER BY k DESC LIMIT 1", (base, base + MAX_LOG_ELEMENTS)
    ).fetchone()
    tail = last[0] - base + last[1] if last else 0
    if tail != run.tail:
        raise CommitConflict("run", run.log)
    if run.first < tail and not connection.execute("SELECT 1 FROM run WHERE k = ?", (base + run.first,)).fetchone():
        raise CommitConflict("run", run.log)


def _write_run(connection: sqlite3.Connection, run: RunWrite) -> None:
    k = run.log * MAX_LOG_ELEMENTS + run.first
    if run.first < run.tail:
        connection.execute("DELETE FROM run WHERE k >= ? AND k < ?", (k, k - run.first + run.tail))
    connection.execute("INSERT INTO run VALUES (?, ?, ?)", (k, run.length, run.data))


def _session_number(
    connection: sqlite3.Connection, record: RecordWrite, known: Mapping[bytes, int], learned: dict[bytes, int]
) -> int | None:
    """The number of the record's session, None if the store has not seen it."""
    number = known.get(record.session) or learned.get(record.session)
    if number is None:
        found = connection.execute("SELECT n FROM session WHERE id = ?", (record.session,)).fetchone()
        if found is None:
            return None
        number = learned[record.session] = found[0]
    return number


def _check_record(connection: sqlite3.Connection, record: RecordWrite, session: int | None) -> None:
    if record.replaces is not None:
        found = connection.execute("SELECT data FROM record WHERE id = ?", (record.id,)).fetchone()
        if found is None or found[0] != record.replaces:
            raise CommitConflict("replace", record.id)
    elif connection.execute(
        "SELECT 1 FROM record WHERE id = ?1 UNION ALL SELECT 1 FROM record WHERE session = ?2 AND sequence = ?3",
        (record.id, session, record.sequence),
    ).fetchone():
        raise CommitConflict("record", record.id)


def _write_record(connection: sqlite3.Connection, record: RecordWrite, session: int | None) -> None:
    if record.replaces is not None:
        connection.execute("UPDATE record SET data = ? WHERE id = ?", (record.data, record.id))
        return
    if session is None:
        session = connection.execute("INSERT INTO session (id) VALUES (?)", (record.session,)).lastrowid
    labels = record.labels
    connection.execute(
        "INSERT INTO record (id, session, sequence, data, agent_id, framework, step_index, step_name, parent, "
        "created_at_us, expires_at_us, handoff_target) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.id,
            session,
            record.sequence,
            record.data,
            *(
                (
                    _label(labels.agent_id),
                    labels.framework,
                    labels.step_index,
                    _label(labels.step_name),
                    labels.parent,
                    labels.created_at_us,
                    record.expires_at_us,
                    _label(labels.handoff_target),
                )
                if labels
                else (None, None, None, None, None, None, record.expires_at_us, None)
            ),
        ),
    )


def _label(text: str | None) -> str | None:
    """Text as SQLite can show it: lone surrogates, which the record itself keeps exactly, become question marks."""
    return text.encode("utf-8", "replace").decode() if text is not None and not text.isascii() else text


def _compare_and_set(connection: sqlite3.Connection, write: RowWrite) -> None:
    if write.expect > ABSENT and write.value is not None:
        changed = connection.execute(
            "UPDATE row SET version = version + 1, value = ? WHERE space = ? AND key = ? AND tree = ? AND version = ?",
            (write.value, *write.key, write.expect),
        )
        if not changed.rowcount:
            raise CommitConflict("row", write.key)
    else:
        _write_row(connection, write, _checked_version(connection, write))


def _checked_version(connection: sqlite3.Connection, write: RowWrite) -> int:
    """The row's version, 0 if there is none, after checking that it is the expected one."""
    found = connection.execute("SELECT version FROM row WHERE space = ? AND key = ? AND tree = ?", write.key).fetchone()
    version: int = found[0] if found else ABSENT
    if write.expect not in (ANY_VERSION, version):
        raise CommitConflict("row", write.key)
    return version


def _write_row(connection: sqlite3.Connection, write: RowWrite, version: int) -> None:
    key: RowKey = write.key
    if write.value is None:
        connection.execute("DELETE FROM row WHERE space = ? AND key = ? AND tree = ?", key)
    elif version == ABSENT:
        connection.execute(
            "INSERT INTO row (space, key, tree, version, value) VALUES (?, ?, ?, 1, ?)", (*key, write.value)
        )
    else:
        connection.execute(
            "UPDATE row SET version = ?, value = ? WHERE space = ? AND key = ? AND tree = ?",
            (version + 1, write.value, *key),
        )


def _delete(connection: sqlite3.Connection, commit: Commit) -> None:
    for id_, data in commit.delete_records:
        connection.execute("DELETE FROM record WHERE id = ? AND data = ?", (id_, data))
    for delete in commit.delete_runs:
        _delete_run(connection, delete)
    for hash_, written_before in commit.delete_blobs.items():
        connection.execute("DELETE FROM blob WHERE hash = ? AND written_at_us < ?", (hash_, written_before))


def _delete_run(connection: sqlite3.Connection, delete: RunDelete) -> None:
    base = delete.log * MAX_LOG_ELEMENTS
    deleted = connection.execute("DELETE FROM run WHERE k = ? AND length = ?", (base + delete.first, delete.length))
    if deleted.rowcount:
        for first, length, data in delete.pieces:
            connection.execute("INSERT INTO run VALUES (?, ?, ?)", (base + first, length, data))
