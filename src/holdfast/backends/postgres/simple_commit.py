"""Simple commits (`backends/simple_commit.py`), for database functions made for them.

All other commits are a `GeneralCommit`. A single simple commit is `SingleSave`, more are
`BatchSave` (migrations/004_hopeful_saves.sql), and commits with messages are `MessageSave`
(007_feed_as_column.sql). These three are optimistic. On a conflict, and where two commits of a
batch change the same row, saves become a `SimpleBatch` (003_saves_with_a_row_beside.sql), and
commits with messages a `GeneralCommit`: both are slower and decide about each commit by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

from holdfast.backends.port import (
    MAX_LOG_ELEMENTS,
    Commit,
    CommitConflict,
    RecordWrite,
    RowKey,
    RowWrite,
    SegmentWrite,
)
from holdfast.backends.postgres.binary_arrays import (
    BIGINT,
    BIGINTS,
    BOOL,
    BYTEA,
    BYTEAS,
    TEXT,
    TEXTS,
    array,
    bytes_array,
    ints_array,
    text_array,
)
from holdfast.backends.postgres.commit import (
    INDEXED,
    NOTHING,
    CommitPlan,
    Function,
    GeneralCommit,
    encode_bool,
    integers,
    key_columns,
    list_columns,
)
from holdfast.backends.simple_commit import RUNS

# Optimism failed. HF003: raised by the functions; 23505: an id, number or segment exists; 21000: an
# unconditional row is put twice.
FALLBACK_ERRORS = ("HF003", "23505", "21000")

_ROW = (TEXT, BYTEA, BYTEA, BYTEA, BIGINT, BYTEA, BYTEA)
_RECORD = (BYTEA, BYTEA, BIGINT, BYTEA, BIGINT, BIGINT, BIGINT, *(BYTEA,) * 5)
_RUN = (BIGINT, BIGINT, BIGINT, BYTEA)
_EXTRA_ROW = (TEXT, *(BYTEA,) * 5)
_ARRAYS = {TEXT: TEXTS, BYTEA: BYTEAS, BIGINT: BIGINTS}
_bigint = Struct(">q").pack
_DONE = bytes(4)

_NO_RUN = (None,) * 4
_NO_EXTRA_ROW = (None,) * 6
_NO_LABELS: tuple[bytes | None, ...] = (None,) * 5
_NO_SEGMENT_IN_BATCH = (NOTHING, 0, 0)


def way_of(commits: Sequence[Commit], locks: Sequence[int]) -> CommitPlan:
    """Return the shortest plan for simple commits with these locks."""
    if any(map(_has_messages, commits)):
        changes = _row_changes(commits)
        return GeneralCommit(commits) if changes is None else MessageSave(commits, changes)
    if len(commits) == 1:
        return SingleSave(commits[0]) if len(locks) == 1 else BatchSave(commits)
    return (
        BatchSave(commits) if len({commit.rows[0].key for commit in commits}) == len(commits) else SimpleBatch(commits)
    )


def deciding_way_of(commits: Sequence[Commit]) -> CommitPlan:
    """Return a plan that decides about each of these simple commits by itself."""
    return GeneralCommit(commits) if any(map(_has_messages, commits)) else SimpleBatch(commits)


def _has_messages(commit: Commit) -> bool:
    """Return whether a simple commit has records for `MessageSave`: several, or one with a feed."""
    return bool(commit.more_records) or (commit.record is not None and commit.record.feed is not None)


def _row_changes(commits: Sequence[Commit]) -> list[RowChange] | None:
    """Return the changes of rows, one for each row; None if two commits of a row don't follow each other."""
    changes: dict[RowKey, RowChange] = {}
    for commit in commits:
        row = commit.rows[0]
        before = changes.get(row.key)
        if before is None:
            changes[row.key] = RowChange(row, row.value, 1)
            continue
        first, value, writes = before
        if row.expect != first.expect + writes or row.was not in (None, value):
            return None
        changes[row.key] = RowChange(first, row.value, writes + 1)
    return list(changes.values())


class SingleSave:
    """A single commit, with the lock of its tree and no other."""

    function = Function("save_one", (BIGINT, BOOL, *_ROW, *_RECORD, *_RUN * RUNS, *_EXTRA_ROW))
    is_hopeful = True

    def __init__(self, commit: Commit) -> None:
        self._commit = commit

    def arguments(self, locks: Sequence[int], *, fast: bool) -> list[bytes | None]:
        commit = self._commit
        row, record, segments = commit.rows[0], commit.record, commit.segments
        assert record is not None
        [lock], key, labels = locks, row.key, record.labels
        expires = record.expires_at_us
        return [
            _bigint(lock),
            encode_bool(fast),
            *_key_columns(key),
            _bigint(row.expect),
            row.was,
            row.value,
            record.id,
            record.session,
            _bigint(record.sequence),
            record.data,
            None if labels is None else _bigint(labels.created_at_us),
            None if expires is None else _bigint(expires),
            None if labels is None else _bigint(labels.step_index),
            *(_NO_LABELS if labels is None else list_columns(labels)),
            *(_run(segments[0]) if segments else _NO_RUN),
            *(_run(segments[1]) if len(segments) > 1 else _NO_RUN),
            *(_list_row_columns(commit.rows[1]) if len(commit.rows) > 1 else _NO_EXTRA_ROW),
        ]

    def outcomes(self, answer: bytes) -> list[BaseException | None]:
        return [None if answer == _DONE else CommitConflict("row", self._commit.rows[0].key)]


class BatchSave:
    """Commits that change one row each, no two the same."""

    function = Function(
        "save_many", (BIGINTS, BOOL, *(_ARRAYS[number] for number in (*_ROW, *_RECORD, *_RUN, *_EXTRA_ROW)))
    )
    is_hopeful = True

    def __init__(self, commits: Sequence[Commit]) -> None:
        self._commits = commits

    def arguments(self, locks: Sequence[int], *, fast: bool) -> list[bytes | None]:
        commits = self._commits
        segments = [_segment_numbers(segment) for commit in commits for segment in commit.segments]
        besides = [_list_row_columns(commit.rows[1]) for commit in commits if len(commit.rows) > 1]
        return [
            ints_array(locks),
            encode_bool(fast),
            *_columns((*_ROW, *_RECORD), [_row_and_record(commit) for commit in commits]),
            *(_columns(_RUN, segments) if segments else _NO_RUNS),
            *(_columns(_EXTRA_ROW, besides) if besides else _NO_EXTRA_ROWS),
        ]

    def outcomes(self, answer: bytes) -> list[BaseException | None]:
        assert answer == _DONE
        return [None] * len(self._commits)


class RowChange(NamedTuple):
    """A row that commits of a batch change one after the other: the first write, the last value, how many."""

    first: RowWrite
    value: bytes | None
    writes: int


class MessageSave:
    """Commits with messages, each with any number of new records."""

    function = Function("save_messages", (BIGINTS, BIGINTS, BYTEAS, TEXTS, BOOL))
    is_hopeful = True

    def __init__(self, commits: Sequence[Commit], changes: Sequence[RowChange]) -> None:
        self._commits = commits
        self._changes = changes

    def arguments(self, locks: Sequence[int], *, fast: bool) -> list[bytes | None]:
        commits = self._commits
        records = [record for commit in commits for record in commit.list_records()]
        segments = [_segment_numbers(segment) for commit in commits for segment in commit.segments]
        besides = [commit.rows[1] for commit in commits if len(commit.rows) > 1]
        ints = [len(self._changes), len(records), len(segments), len(besides)]
        data: list[bytes | None] = []
        for (key, _, expect, was), value, writes in self._changes:
            ints += (expect, writes)
            data += (*key_columns(key.key), key.tree, was, value)
        for record in records:
            created, expires, step, texts = _labels(record)
            ints += (record.sequence, created, expires, step)
            data += (record.id, record.session, record.data, *texts, record.feed)
        for *numbers, bytes_ in segments:
            ints += numbers
            data.append(bytes_)
        for row in besides:
            data += _list_row_columns(row)[1:]
        words = [change.first.key.space for change in self._changes] + [row.key.space for row in besides]
        return [ints_array(locks), ints_array(ints), bytes_array(data), text_array(words), encode_bool(fast)]

    def outcomes(self, answer: bytes) -> list[BaseException | None]:
        if answer != _DONE:  # there is one, or all would have been rolled back
            return [CommitConflict("row", commit.rows[0].key) for commit in self._commits]
        return [None] * len(self._commits)


class SimpleBatch:
    """Any simple commits, decided one after the other."""

    function = Function("save_batch", (BIGINTS, BIGINTS, BYTEAS, TEXTS, BOOL))
    is_hopeful = False

    def __init__(self, commits: Sequence[Commit]) -> None:
        self._commits = commits
        self._ints: list[int] = []
        self._bytes: list[bytes | None] = []
        self._words: list[str] = []
        for commit in commits:
            self._add(commit)

    def arguments(self, locks: Sequence[int], *, fast: bool) -> list[bytes | None]:
        ints, bytes_, words = ints_array(self._ints), bytes_array(self._bytes), text_array(self._words)
        return [ints_array(locks), ints, bytes_, words, encode_bool(fast)]

    def outcomes(self, answer: bytes) -> list[BaseException | None]:
        answers = integers(answer)
        return [
            _conflict(commit, number) if number else None for commit, number in zip(self._commits, answers, strict=True)
        ]

    def _add(self, commit: Commit) -> None:
        record, row = commit.record, commit.rows[0]
        assert record is not None
        created, expires, step, texts = _labels(record)
        self._ints += (record.sequence, created, expires, step, row.expect)
        data: list[bytes | None] = [None] * RUNS
        for number, segment in enumerate(commit.segments):
            *numbers, data[number] = _segment_numbers(segment)
            self._ints += numbers
        self._ints += _NO_SEGMENT_IN_BATCH * (RUNS - len(commit.segments))
        key = row.key
        self._bytes += (record.id, record.session, record.data, *texts)
        self._bytes += (*key_columns(key.key), key.tree, row.value, row.was, *data)
        self._words.append(key.space)
        if len(commit.rows) == 1:
            self._bytes += (None,) * 5
            self._words.append("")
        else:
            extra = commit.rows[1]
            self._bytes += _list_row_columns(extra)[1:]
            self._words.append(extra.key.space)


def _conflict(commit: Commit, answer: int) -> CommitConflict:
    assert commit.record is not None
    if answer <= RUNS:
        return CommitConflict("segment", commit.segments[answer - 1].log)
    return CommitConflict("record", commit.record.id) if answer == 3 else CommitConflict("row", commit.rows[0].key)


def _row_and_record(commit: Commit) -> tuple[bytes | int | None, ...]:
    row, record = commit.rows[0], commit.record
    assert record is not None
    created, expires, step, texts = _labels(record)
    return (
        *_key_columns(row.key), row.expect, row.was, row.value,
        record.id, record.session, record.sequence, record.data, created, expires, step, *texts,
    )  # fmt: skip


def _key_columns(key: RowKey) -> tuple[bytes, bytes, bytes, bytes]:
    return key.space.encode(), *key_columns(key.key), key.tree


def _labels(record: RecordWrite) -> tuple[int, int, int, tuple[bytes | None, ...]]:
    """Return when it was created and expires, its step, and its labels that are texts."""
    labels = record.labels
    expires = NOTHING if record.expires_at_us is None else record.expires_at_us
    if labels is None:
        return NOTHING, expires, NOTHING, _NO_LABELS
    return labels.created_at_us, expires, labels.step_index, list_columns(labels)


def _run(segment: SegmentWrite) -> tuple[bytes, bytes, bytes, bytes]:
    k, base, length, data = _segment_numbers(segment)
    return _bigint(k), _bigint(base), _bigint(length), data


def _segment_numbers(segment: SegmentWrite) -> tuple[int, int, int, bytes]:
    base = segment.log * MAX_LOG_ELEMENTS
    return base + segment.first, base, segment.length, segment.data


def _list_row_columns(row: RowWrite) -> tuple[bytes | None, ...]:
    return *_key_columns(row.key), row.key.key[INDEXED:], row.value


def _columns(types: Sequence[int], rows: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Return rows as arrays, one for each of their columns."""
    return [
        ints_array(column) if type_ == BIGINT else array(type_, column)
        for type_, column in zip(types, zip(*rows, strict=True), strict=True)
    ]


_NO_RUNS = [array(type_, ()) for type_ in _RUN]
_NO_EXTRA_ROWS = [array(type_, ()) for type_ in _EXTRA_ROW]
