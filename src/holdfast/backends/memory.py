"""The memory backend: dictionaries under one lock.

It serves tests and experiments, and is the model of the other backends.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from functools import cached_property
from itertools import islice

from holdfast.backends import fork_safety
from holdfast.backends.port import (
    ABSENT,
    ANY_VERSION,
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
from holdfast.errors import StoreError, UsageError


def open_url(url: str, timeout: float = 30.0) -> MemoryBackend:
    """Open `memory://`: a new, empty store each time."""
    if url not in ("memory:", "memory://"):
        raise UsageError(f"{url!r} is not a memory store: the URL is 'memory://', and each opening is a new store")
    return MemoryBackend(timeout=timeout)


class MemoryBackend:
    def __init__(self, *, timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._records: dict[bytes, Record] = {}
        self._sessions: dict[bytes, dict[int, bytes]] = {}
        self._order: list[bytes | None] = []  # ids by position, the first is 1; None where a record was deleted
        self._positions: dict[bytes, int] = {}
        self._feeds: dict[bytes, list[int]] = {}  # positions by feed
        self._segments: dict[int, list[Segment]] = {}
        self._blobs: dict[bytes, tuple[bytes, int]] = {}
        self._rows: dict[RowKey, Row] = {}
        self._row_order: dict[str, list[tuple[bytes, bytes]]] = {}
        self._closed = False
        fork_safety.hold_while_forking(self)

    @property
    def fork_lock(self) -> threading.Lock:
        return self._lock

    def renew_fork_lock(self) -> None:
        self._lock = threading.Lock()

    @cached_property  # each save asks for them
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="memory",
            durable=False,
            shared=False,
            durability="none",
            location="memory://",
            timeout=self._timeout,
            feeds=True,
        )

    # -- writing -----------------------------------------------------------------------------------------------------

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        outcomes: list[BaseException | None] = []
        with self._lock:
            self._check_open()
            for commit in commits:
                try:
                    self._check(commit)
                except Exception as refusal:
                    outcomes.append(refusal)
                else:
                    self._apply(commit)
                    outcomes.append(None)
        return outcomes

    def _check(self, commit: Commit) -> None:
        for write in commit.rows:
            row = self._rows.get(write.key)
            if write.expect not in (ANY_VERSION, row.version if row else ABSENT):
                raise CommitConflict("row", write.key)
            if write.was is not None and (row is None or row.value != write.was):
                raise CommitConflict("row", write.key)
        ends: dict[int, int] = {}  # of the logs that this commit writes to
        for segment in commit.segments:
            follows = ends.get(segment.log) == segment.first == segment.tail
            ends[segment.log] = segment.first + segment.length
            if follows:
                continue
            segments = self._segments.get(segment.log, [])
            tail = segments[-1].first + segments[-1].length if segments else 0
            replaces = segment.first < tail
            if tail != segment.tail or (replaces and not any(known.first == segment.first for known in segments)):
                raise CommitConflict("segment", segment.log)
        for key, version in commit.require_rows:
            required = self._rows.get(key)
            if version != (required.version if required else ABSENT):
                raise CommitConflict("row", key)
        for id_, prefix in commit.require:
            record = self._records.get(id_)
            if record is None or not record.data.startswith(prefix):
                raise CommitConflict("require", id_)
        for write_record in commit.list_records():
            known = self._records.get(write_record.id)
            if write_record.replaces is not None:
                if known is None or known.data != write_record.replaces:
                    raise CommitConflict("replace", write_record.id)
            elif known is not None or write_record.sequence in self._sessions.get(write_record.session, {}):
                raise CommitConflict("record", write_record.id)

    def _apply(self, commit: Commit) -> None:
        now = time.time_ns() // 1000
        for segment in commit.segments:
            segments = self._segments.setdefault(segment.log, [])
            while segments and segments[-1].first >= segment.first:
                segments.pop()
            segments.append(Segment(segment.first, segment.length, segment.data))
        for hash_, data in commit.blobs.items():
            # Later than before, even if the clock stands still: gc must see that it was written again.
            before = self._blobs[hash_][1] if hash_ in self._blobs else 0
            self._blobs[hash_] = (data, max(now, before + 1))
        for write in commit.rows:
            self._put_row(write.key, write.value)
        for record in commit.list_records():
            if record.replaces is None:
                self._order.append(record.id)
                self._positions[record.id] = len(self._order)
                if record.feed is not None:
                    self._feeds.setdefault(record.feed, []).append(len(self._order))
            self._records[record.id] = Record(record.id, record.session, record.sequence, record.data)
            self._sessions.setdefault(record.session, {})[record.sequence] = record.id
        for id_, data in commit.delete_records:
            known = self._records.get(id_)
            if known is not None and known.data == data:
                del self._records[id_]
                self._order[self._positions.pop(id_) - 1] = None
                del self._sessions[known.session][known.sequence]
        for delete in commit.delete_segments:
            segments = self._segments.get(delete.log, [])
            at = next((i for i, r in enumerate(segments) if (r.first, r.length) == (delete.first, delete.length)), None)
            if at is not None:
                segments[at : at + 1] = [Segment(*piece) for piece in delete.pieces]
                if not segments:
                    del self._segments[delete.log]
        for hash_, written_before in commit.delete_blobs.items():
            if hash_ in self._blobs and self._blobs[hash_][1] < written_before:
                del self._blobs[hash_]

    def _put_row(self, key: RowKey, value: bytes | None) -> None:
        order = self._row_order.setdefault(key.space, [])
        place = (key.key, key.tree)
        known = self._rows.get(key)
        if value is None:
            if known is not None:
                del self._rows[key]
                del order[bisect_left(order, place)]
            return
        if known is None:
            insort(order, place)
        self._rows[key] = Row(value, known.version + 1 if known else 1)

    # -- reading -----------------------------------------------------------------------------------------------------

    def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        with self._lock:
            self._check_open()
            return [self._records.get(id_) for id_ in ids]

    def session_records(self, session: bytes, *, before: int | None = None, limit: int | None = None) -> list[Record]:
        with self._lock:
            self._check_open()
            by_sequence = self._sessions.get(session, {})
            newest_first = sorted((s for s in by_sequence if before is None or s < before), reverse=True)
            return [self._records[by_sequence[sequence]] for sequence in newest_first[:limit]]

    def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        with self._lock:
            self._check_open()
            return [id_ for id_ in self._records if id_.hex().endswith(ending)][:limit]

    def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        with self._lock:
            self._check_open()
            return [
                [
                    segment
                    for segment in self._segments.get(span.log, [])
                    if segment.first < span.end and segment.first + segment.length > span.first
                ]
                for span in spans
            ]

    def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            self._check_open()
            return [self._blobs[hash_][0] if hash_ in self._blobs else None for hash_ in hashes]

    def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        with self._lock:
            self._check_open()
            return [self._rows.get(key) for key in keys]

    def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        with self._lock:
            self._check_open()
            found: list[tuple[RowKey, Row]] = []
            order = self._row_order.get(space, [])
            for key, of_tree in order[bisect_left(order, (prefix, b"")) :]:
                if not key.startswith(prefix) or (limit is not None and len(found) >= limit):
                    break
                if (after is None or key > after) and (tree is None or of_tree == tree):
                    row_key = RowKey(space, key, of_tree)
                    found.append((row_key, self._rows[row_key]))
            return found

    def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        with self._lock:
            self._check_open()
            order = sorted(self._records)
            start = 0 if after is None else bisect_right(order, after)
            return [self._records[id_] for id_ in order[start : start + limit]]

    def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
        with self._lock:
            self._check_open()
            found: list[Change] = []
            positions: Sequence[int] = range(after + 1, len(self._order) + 1)
            if feed is not None:
                known = self._feeds.get(feed, [])
                positions = known[bisect_right(known, after) :]
            for position in positions:
                id_ = self._order[position - 1]
                if len(found) == limit:
                    break
                if id_ is not None:
                    found.append(Change(position, self._records[id_]))
            return found

    def recent(self, before: int | None, limit: int) -> list[Change]:
        with self._lock:
            self._check_open()
            last = len(self._order) if before is None else min(before - 1, len(self._order))
            positions = ((position, self._order[position - 1]) for position in range(last, 0, -1))
            found = (Change(position, self._records[id_]) for position, id_ in positions if id_ is not None)
            return list(islice(found, limit))

    def last_change(self) -> int:
        with self._lock:
            self._check_open()
            return len(self._order)

    def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        with self._lock:
            self._check_open()
            infos = sorted(
                SegmentInfo(log, segment.first, segment.length, len(segment.data))
                for log, segments in self._segments.items()
                for segment in segments
            )
            return [info for info in infos if after is None or (info.log, info.first) > after][:limit]

    def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        with self._lock:
            self._check_open()
            order = sorted(hash_ for hash_ in self._blobs if after is None or hash_ > after)
            return [BlobInfo(hash_, len(self._blobs[hash_][0]), self._blobs[hash_][1]) for hash_ in order[:limit]]

    def usage(self) -> Usage:
        with self._lock:
            self._check_open()
            sizes = {
                "record_bytes": sum(len(record.data) for record in self._records.values()),
                "segment_bytes": sum(len(segment.data) for segments in self._segments.values() for segment in segments),
                "blob_bytes": sum(len(data) for data, _ in self._blobs.values()),
                "row_bytes": sum(len(row.value) for row in self._rows.values()),
            }
            return Usage(
                records=len(self._records),
                segments=sum(len(segments) for segments in self._segments.values()),
                blobs=len(self._blobs),
                rows=len(self._rows),
                total_bytes=sum(sizes.values()),
                **sizes,
            )

    def compact(self) -> None:
        """Do nothing: deleted entries are gone."""

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("this memory store was closed: open a new client")
