"""The decision about one commit: conditions are checked against the view, changes noted on it.

A refused commit may have noted changes: the caller discards the view.
"""

from __future__ import annotations

import time

from holdfast.backends.files import envelope, layout
from holdfast.backends.files.layout import SegmentName
from holdfast.backends.files.write_set import Changes, View
from holdfast.backends.port import (
    ABSENT,
    ANY_VERSION,
    Commit,
    CommitConflict,
    Record,
    RecordWrite,
    Row,
    RowWrite,
    SegmentDelete,
    SegmentWrite,
)


def segments_in(view: View, log: int) -> list[SegmentName]:
    """Return the segments of a log, in order."""
    folder = layout.log_folder(log)
    return sorted(segment for name in view.names(folder) if (segment := layout.run_in(folder, name)) is not None)


def record_at(view: View, path: str) -> Record | None:
    raw = view.read(path)
    return None if raw is None else envelope.read_record(raw, path).record


def decide(view: Changes, commit: Commit) -> None:
    """Check a commit and note its changes; raise `CommitConflict` if a condition does not hold."""
    for id_, prefix in commit.require:
        record = record_at(view, layout.record_path(id_))
        if record is None or not record.data.startswith(prefix):
            raise CommitConflict("require", id_)
    for key, version in commit.require_rows:  # as it was before this commit, which may write the same row
        known = _row_at(view, layout.row_path(key))
        if version != (known.version if known else ABSENT):
            raise CommitConflict("row", key)
    for row in commit.rows:
        _write_row(view, row)
    for segment in commit.segments:
        _write_run(view, segment)
    for write in commit.list_records():
        _write_record(view, write)
    now = time.time_ns() // 1000
    for hash_, data in commit.blobs.items():
        _write_blob(view, hash_, data, now)
    for id_, data in commit.delete_records:
        _delete_record(view, id_, data)
    for delete in commit.delete_segments:
        _delete_run(view, delete)
    for hash_, before in commit.delete_blobs.items():
        path = layout.blob_path(hash_)
        info = view.info(path)
        if info is not None and info.time_us < before:
            view.remove(path)


def _row_at(view: View, path: str) -> Row | None:
    raw = view.read(path)
    return None if raw is None else envelope.read_row(raw, path)[1]


def _write_row(view: Changes, write: RowWrite) -> None:
    path = layout.row_path(write.key)
    now = _row_at(view, path)
    version = now.version if now else ABSENT
    if write.expect not in (ANY_VERSION, version) or (write.was is not None and (not now or now.value != write.was)):
        raise CommitConflict("row", write.key)
    if write.value is not None:
        view.put(path, envelope.row_file(write.key, Row(write.value, version + 1)))
    elif version != ABSENT:
        view.remove(path)


def _write_run(view: Changes, write: SegmentWrite) -> None:
    segments = segments_in(view, write.log)
    tail = segments[-1].end if segments else 0
    replaced = [segment for segment in segments if segment.first >= write.first]
    if tail != write.tail or (write.first < tail and (not replaced or replaced[0].first != write.first)):
        raise CommitConflict("segment", write.log)
    for segment in replaced:
        view.remove(segment.path)
    view.put(layout.run_path(write.log, write.first, write.length), write.data)


def _write_record(view: Changes, write: RecordWrite) -> None:
    path = layout.record_path(write.id)
    raw = view.read(path)
    known = None if raw is None else envelope.read_record(raw, path)
    if write.replaces is not None:
        if known is None or known.record.data != write.replaces:
            raise CommitConflict("replace", write.id)
        in_session = layout.session_path(known.record.session, known.record.sequence)
    else:
        in_session = layout.session_path(write.session, write.sequence)
        if known is not None or view.info(in_session) is not None:
            raise CommitConflict("record", write.id)
    position = view.add_record(write.id) if write.replaces is None else None
    view.put(path, envelope.record_file(write, known, position))
    view.link(in_session, path)
    if position is not None and write.feed is not None:
        view.link(layout.feed_path(write.feed, position, write.id), path)


def _delete_record(view: Changes, id_: bytes, data: bytes) -> None:
    path = layout.record_path(id_)
    raw = view.read(path)
    known = None if raw is None else envelope.read_record(raw, path)
    if known is not None and known.record.data == data:
        view.remove(path)
        view.remove(layout.session_path(known.record.session, known.record.sequence))
        feed, position = envelope.feed_of(known.about), known.about.get(envelope.POSITION)
        if feed is not None and isinstance(position, int):
            view.remove(layout.feed_path(feed, position, id_))


def _write_blob(view: Changes, hash_: bytes, data: bytes, now: int) -> None:
    """Write a blob; only touch one that exists, unless it was cut short: then it is rewritten."""
    path = layout.blob_path(hash_)
    info = view.info(path)
    if info is not None:
        # Later than before, even if the clock stands still: gc must see that it was written again.
        now = max(now, info.time_us + 1)
    if info is not None and info.size == len(data):
        view.touch(path, now)
    else:
        view.put(path, data, now)


def _delete_run(view: Changes, delete: SegmentDelete) -> None:
    path = layout.run_path(delete.log, delete.first, delete.length)
    if view.info(path) is None:
        return
    view.remove(path)
    for first, length, data in delete.pieces:
        view.put(layout.run_path(delete.log, first, length), data)
