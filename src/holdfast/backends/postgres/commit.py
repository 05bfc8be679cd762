"""Commits as a program for `carry_out`, a function in the database (007_feed_as_column.sql).

The program is a list of whole numbers: an operation, then its arguments. Bytes and names of spaces
are in separate lists; the program refers to them by their number there, from 1 on; 0 is none. All
conditions of a commit come first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import unpack
from typing import NamedTuple, Protocol

from holdfast.backends.port import (
    ANY_VERSION,
    MAX_LOG_ELEMENTS,
    STORE,
    Commit,
    CommitConflict,
    Labels,
    RecordWrite,
    RowKey,
    RowWrite,
    SegmentDelete,
    SegmentWrite,
)
from holdfast.backends.postgres.binary_arrays import (
    BIGINTS,
    BOOL,
    BYTEAS,
    ENCODED,
    TEXTS,
    bytes_array,
    ints_array,
    text_array,
)

BEGIN, TAIL, BEGINS_WITH, VERSION, FREE, DATA, VALUE = range(7)
RUN, BLOB, RECORD, REPLACE, PUT_ROW, DROP_ROW, RECORD_OF_FEED = range(10, 17)
DELETE_RECORD, DELETE_RUN, DELETE_BLOB = range(20, 23)

INDEXED = 1024  # bytes of a row's key that are in the index
NOTHING = -1

# Limits of one transaction. PostgreSQL has room for 64 locks a connection; an array has less than 1
# GB.
MAX_LOCKS = 64
MAX_BYTES = 32 * 1024 * 1024


class Function(NamedTuple):
    """A function in the schema, and the types of its arguments."""

    name: str
    types: tuple[int, ...]

    def adapt(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        """Return encoded arguments as objects whose types psycopg knows (`binary_arrays.py`)."""
        return [
            None if value is None else ENCODED[type_](value) for type_, value in zip(self.types, values, strict=True)
        ]


class CommitPlan(Protocol):
    """A batch of commits, ready to be sent to a function; `outcomes` reads the result."""

    @property
    def function(self) -> Function: ...

    is_hopeful: bool
    """Whether the function refuses all if anything is unusual. Then another plan decides."""

    def arguments(self, locks: Sequence[int], *, fast: bool) -> list[bytes | None]: ...

    def outcomes(self, answer: bytes) -> list[BaseException | None]: ...


class GeneralCommit:
    """Commits of any kind, decided one after the other."""

    function = Function("carry_out", (BIGINTS, BIGINTS, BYTEAS, TEXTS, BOOL))
    is_hopeful = False

    def __init__(self, commits: Sequence[Commit]) -> None:
        self.ints: list[int] = []
        self.bytes: list[bytes] = []
        self.words: list[str] = []
        self._word_numbers: dict[str, int] = {}
        self._conditions: dict[int, tuple[str, object]] = {}  # by their index in the program
        for commit in commits:
            self._add(commit)

    def arguments(self, locks: Sequence[int], *, fast: bool) -> list[bytes | None]:
        ints, bytes_, words = ints_array(self.ints), bytes_array(self.bytes), text_array(self.words)
        return [ints_array(locks), ints, bytes_, words, encode_bool(fast)]

    def outcomes(self, answer: bytes) -> list[BaseException | None]:
        return [CommitConflict(*self._conditions[place]) if place else None for place in integers(answer)]

    def _add(self, commit: Commit) -> None:
        ints = self.ints
        ints += (BEGIN, 0)
        begin = len(ints)
        self._add_conditions(commit)
        for segment in commit.segments:
            k = segment.log * MAX_LOG_ELEMENTS + segment.first
            ints += (RUN, k, segment.length, self._byte(segment.data), k - segment.first + segment.tail)
        # Sorted by hash: two commits that write the same blobs don't deadlock.
        for hash_ in sorted(commit.blobs):
            ints += (BLOB, self._byte(hash_), self._byte(commit.blobs[hash_]))
        for record in commit.list_records():
            self._add_record(record)
        for row in commit.rows:
            self._add_row(row)
        for id_, data in commit.delete_records:
            ints += (DELETE_RECORD, self._byte(id_), self._byte(data))
        for delete in commit.delete_segments:
            self._add_run_delete(delete)
        for hash_ in sorted(commit.delete_blobs):
            ints += (DELETE_BLOB, self._byte(hash_), commit.delete_blobs[hash_])
        ints[begin - 1] = len(ints) + 1

    def _add_conditions(self, commit: Commit) -> None:
        ends: dict[int, int] = {}  # of the logs that this commit writes to
        for segment in commit.segments:
            if not ends.get(segment.log) == segment.first == segment.tail:
                self._condition("segment", segment.log, TAIL, *_tail(segment))
            ends[segment.log] = segment.first + segment.length
        for id_, prefix in commit.require:
            self._condition("require", id_, BEGINS_WITH, self._byte(id_), self._byte(prefix))
        for key, version in commit.require_rows:
            self._condition("row", key, VERSION, *self._row_key(key), version)
        for record in commit.list_records():
            if record.replaces is None:
                arguments = self._byte(record.id), self._byte(record.session), record.sequence
                self._condition("record", record.id, FREE, *arguments)
            else:
                self._condition("replace", record.id, DATA, self._byte(record.id), self._byte(record.replaces))
        for key, _, expect, was in commit.rows:
            if expect != ANY_VERSION:
                self._condition("row", key, VERSION, *self._row_key(key), expect)
            if was is not None:
                self._condition("row", key, VALUE, *self._row_key(key), self._byte(was))

    def _add_record(self, record: RecordWrite) -> None:
        if record.replaces is not None:
            self.ints += (REPLACE, self._byte(record.id), self._byte(record.data))
            return
        expires = NOTHING if record.expires_at_us is None else record.expires_at_us
        self.ints += (RECORD if record.feed is None else RECORD_OF_FEED, self._byte(record.id))
        self.ints += (self._byte(record.session), record.sequence, self._byte(record.data))
        labels = record.labels
        if labels is None:
            self.ints += (NOTHING, expires, NOTHING, 0, 0, 0, 0, 0)
        else:
            columns = map(self._byte_or_none, list_columns(labels))
            self.ints += (labels.created_at_us, expires, labels.step_index, *columns)
        if record.feed is not None:
            self.ints.append(self._byte(record.feed))

    def _add_row(self, row: RowWrite) -> None:
        key = self._row_key(row.key)
        if row.value is None:
            self.ints += (DROP_ROW, *key)
        else:
            self.ints += (PUT_ROW, *key, self._byte(row.key.key[INDEXED:]), self._byte(row.value))

    def _add_run_delete(self, delete: SegmentDelete) -> None:
        ints, base = self.ints, delete.log * MAX_LOG_ELEMENTS
        ints += (DELETE_RUN, base + delete.first, delete.length, 0)
        end = len(ints) - 1
        for first, length, data in delete.pieces:
            ints += (RUN, base + first, length, self._byte(data), base + first)
        ints[end] = len(ints) + 1

    def _condition(self, kind: str, detail: object, *operation: int) -> None:
        self._conditions[len(self.ints) + 1] = (kind, detail)
        self.ints += operation

    def _row_key(self, key: RowKey) -> tuple[int, int, int, int]:
        number = self._word_numbers.get(key.space)
        if number is None:
            self.words.append(key.space)
            number = self._word_numbers[key.space] = len(self.words)
        indexed, rest_hash = key_columns(key.key)
        return number, self._byte(indexed), self._byte(rest_hash), self._byte(key.tree)

    def _byte(self, data: bytes) -> int:
        self.bytes.append(data)
        return len(self.bytes)

    def _byte_or_none(self, data: bytes | None) -> int:
        return 0 if data is None else self._byte(data)


def encode_bool(is_so: bool) -> bytes:
    return b"\1" if is_so else b"\0"


def integers(data: bytes) -> Sequence[int]:
    """Return the elements of an integer array without nulls, from the server's binary form."""
    count = max(len(data) - 20, 0) // 8  # an empty one has no dimension
    return unpack(f">{2 * count}i", data[20:])[1::2] if count else ()


def key_columns(key: bytes) -> tuple[bytes, bytes]:
    """Split a row's key into its indexed part and the hash of the rest, if there is one."""
    return key[:INDEXED], hashlib.sha256(key[INDEXED:]).digest() if len(key) > INDEXED else b""


def batches(commits: Sequence[Commit], schema: str) -> Iterator[tuple[list[Commit], list[int]]]:
    """Yield the commits in order, in as few transactions as possible, each with its sorted locks."""
    if len(commits) == 1:
        yield list(commits), sorted(set(_locks(commits[0], schema)))
        return
    batch: list[Commit] = []
    locks: set[int] = set()
    size = 0
    for commit in commits:
        wanted = _locks(commit, schema)
        weight = _weight(commit)
        is_full = len(locks) + len(wanted) > MAX_LOCKS and len(locks.union(wanted)) > MAX_LOCKS
        if batch and (is_full or size + weight > MAX_BYTES):
            yield batch, sorted(locks)
            batch, locks, size = [], set(), 0
        batch.append(commit)
        locks.update(wanted)
        size += weight
    if batch:
        yield batch, sorted(locks)


def changes_something(commit: Commit) -> bool:
    return bool(
        commit.record
        or commit.rows
        or commit.more_records
        or commit.segments
        or commit.blobs
        or commit.delete_records
        or commit.delete_segments
        or commit.delete_blobs
    )


def lock_number(*names: bytes) -> int:
    """Return the number of the advisory lock of these names, among all users of the database."""
    digest = hashlib.sha256(b"holdfast\0" + b"".join(len(name).to_bytes(4, "big") + name for name in names)).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


@lru_cache(maxsize=1024)
def tree_lock(schema: str, tree: bytes) -> int:
    return lock_number(schema.encode(), tree)


def _locks(commit: Commit, schema: str) -> list[int]:
    """Return the locks of a commit: its tree, and the rows of the whole store that it writes."""
    locks = [tree_lock(schema, commit.tree)]
    for write in commit.rows:
        key = write.key
        if key.tree == STORE:
            locks.append(lock_number(schema.encode(), STORE, key.space.encode(), key.key))
    return locks


def _weight(commit: Commit) -> int:
    """Return the bytes of a commit, as far as they may be many."""
    size = 0
    for record in commit.list_records():
        size += len(record.data)
        if record.replaces is not None:
            size += len(record.replaces)
    for segment in commit.segments:
        size += len(segment.data)
    if commit.blobs:
        size += sum(map(len, commit.blobs.values()))
    if commit.delete_records:
        size += sum(len(data) for _, data in commit.delete_records)
    return size


def _tail(segment: SegmentWrite) -> tuple[int, int, int]:
    base = segment.log * MAX_LOG_ELEMENTS
    return base, base + segment.tail, base + segment.first if segment.first < segment.tail else NOTHING


def list_columns(labels: Labels) -> tuple[bytes | None, ...]:
    return (
        labels.parent,
        _label(labels.agent_id),
        _label(labels.framework),
        _label(labels.step_name),
        _label(labels.handoff_target),
    )


@lru_cache(maxsize=256)
def _label(text: str | None) -> bytes | None:
    """Return text as PostgreSQL can show it.

    Lone surrogates and NUL, which the record itself keeps, become question marks.
    """
    return None if text is None else text.encode("utf-8", "replace").replace(b"\0", b"?")
