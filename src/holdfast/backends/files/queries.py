"""Queries: the verbs that read, under a lock that the caller holds."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from holdfast.backends.files import envelope, layout
from holdfast.backends.files.commit import record_at, segments_in
from holdfast.backends.files.file_names import key_of
from holdfast.backends.files.write_set import StoreView
from holdfast.backends.port import BlobInfo, Record, Row, RowKey, Segment, SegmentInfo, Span, Usage
from holdfast.errors import CorruptError


def records(view: StoreView, wanted: Sequence[bytes]) -> list[Record | None]:
    return [record_at(view, layout.record_path(id_)) for id_ in wanted]


def session_records(view: StoreView, session: bytes, before: int | None, limit: int | None) -> list[Record]:
    numbers = (layout.number_in(name, layout.RECORD_END) for name in view.names(layout.session_folder(session)))
    wanted = sorted((n for n in numbers if n is not None and (before is None or n < before)), reverse=True)[:limit]
    found = (record_at(view, layout.session_path(session, number)) for number in wanted)
    return [record for record in found if record is not None]


def find_ids(view: StoreView, ending: str, limit: int) -> list[bytes]:
    wanted = ending.lower()
    found = (id_ for id_ in ids(view, wanted[-2:] if len(wanted) >= 2 else "") if id_.hex().endswith(wanted))
    return heapq.nsmallest(limit, found)


def page_records(view: StoreView, after: bytes | None, limit: int) -> list[Record]:
    """Return a page of records, damaged ones included.

    A record whose first lines are damaged is passed on as it is, and one that its session has lost
    as a record without a session: callers that walk a store look for such records.
    """
    page = heapq.nsmallest(limit, (id_ for id_ in ids(view) if after is None or id_ > after))
    found: list[Record] = []
    for id_ in page:
        path = layout.record_path(id_)
        raw = view.read(path)
        if raw is None:
            continue
        try:
            record = envelope.read_record(raw, path).record
            lost = view.info(layout.session_path(record.session, record.sequence)) is None
            found.append(Record(id_, b"", 0, record.data) if lost else record)
        except CorruptError:
            found.append(Record(id_, b"", 0, raw))
    return found


def segments(view: StoreView, spans: Sequence[Span]) -> list[list[Segment]]:
    logs = {log: segments_in(view, log) for log in {span.log for span in spans}}
    return [
        [
            Segment(segment.first, segment.length, data)
            for segment in logs[span.log]
            if segment.first < span.end and segment.end > span.first and (data := view.read(segment.path)) is not None
        ]
        for span in spans
    ]


def page_segments(view: StoreView, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
    page: list[SegmentInfo] = []
    logs = (log for name in view.names(layout.LOGS) if (log := layout.number_in(name)) is not None)
    for log in sorted(log for log in logs if after is None or log >= after[0]):
        for segment in segments_in(view, log):
            if after is None or (log, segment.first) > after:
                info = view.info(segment.path)
                page.append(SegmentInfo(log, segment.first, segment.length, info.size if info else 0))
                if len(page) == limit:
                    return page
    return page


def blobs(view: StoreView, hashes: Sequence[bytes]) -> list[bytes | None]:
    return [view.read(layout.blob_path(hash_)) for hash_ in hashes]


def page_blobs(view: StoreView, after: bytes | None, limit: int) -> list[BlobInfo]:
    page: list[BlobInfo] = []
    for folder in sorted(view.names(layout.BLOBS)):
        if after is not None and folder < after.hex()[:2]:
            continue
        for name in sorted(view.names(f"{layout.BLOBS}/{folder}")):
            hash_ = layout.bytes_in(name)
            if hash_ is None or (after is not None and hash_ <= after):
                continue
            info = view.info(layout.blob_path(hash_))
            if info is not None:
                page.append(BlobInfo(hash_, *info))
            if len(page) == limit:
                return page
    return page


def rows(view: StoreView, keys: Sequence[RowKey]) -> list[Row | None]:
    found: list[Row | None] = []
    for key in keys:
        path = layout.row_path(key)
        raw = view.read(path)
        found.append(None if raw is None else envelope.read_row(raw, path)[1])
    return found


def scan(
    view: StoreView, space: str, *, tree: bytes | None, prefix: bytes, after: bytes | None, limit: int | None
) -> list[tuple[RowKey, Row]]:
    places: list[tuple[bytes, bytes, str]] = []
    for folder in _tree_folders(view, space, tree):
        for name in view.names(folder):
            place = _row_place(view, folder, name)
            if place is not None and place[0].startswith(prefix) and (after is None or place[0] > after):
                places.append(place)
    found: list[tuple[RowKey, Row]] = []
    for key, of_tree, path in sorted(places)[:limit]:
        raw = view.read(path)
        if raw is None:
            continue
        try:
            found.append(envelope.read_row(raw, path))
        except CorruptError:
            # Passed on as it is: its reader detects the damage, and a damaged row hides none of the others.
            found.append((RowKey(space, key, of_tree), Row(raw, 0)))
    return found


def usage(view: StoreView) -> Usage:
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for kind in (layout.RECORDS, layout.LOGS, layout.BLOBS, layout.ROWS):
        files = [info.size for path in _files(view, kind) if (info := view.info(path)) is not None]
        counts[kind], sizes[kind] = len(files), sum(files)
    return Usage(
        records=counts[layout.RECORDS],
        segments=counts[layout.LOGS],
        blobs=counts[layout.BLOBS],
        rows=counts[layout.ROWS],
        record_bytes=sizes[layout.RECORDS],
        segment_bytes=sizes[layout.LOGS],
        blob_bytes=sizes[layout.BLOBS],
        row_bytes=sizes[layout.ROWS],
        total_bytes=view.measure_usage(""),
    )


def ids(view: StoreView, last_two: str = "") -> Iterator[bytes]:
    """Yield all ids, or those whose hex digits end in `last_two`, in no order."""
    for folder in view.names(layout.RECORDS):
        if last_two in ("", folder):
            for name in view.names(f"{layout.RECORDS}/{folder}"):
                id_ = layout.bytes_in(name, layout.RECORD_END)
                if id_ is not None:
                    yield id_


def _tree_folders(view: StoreView, space: str, tree: bytes | None) -> list[str]:
    if tree is not None:
        return [layout.tree_folder(space, tree)]
    folder = layout.space_folder(space)
    return [f"{folder}/{name}" for name in view.names(folder) if layout.tree_in(name) is not None]


def _row_place(view: StoreView, folder: str, name: str) -> tuple[bytes, bytes, str] | None:
    """Return a row's place in the order of (key, tree). Only a name that was cut needs the file's content."""
    tree = layout.tree_in(folder.rpartition("/")[2])
    if not name.endswith(layout.ROW_END) or tree is None:
        return None
    path = f"{folder}/{name}"
    key = key_of(name.removesuffix(layout.ROW_END))
    if key is None:
        raw = view.read(path)
        if raw is None:
            return None
        key = envelope.read_row(raw, path)[0].key
    return key, tree, path


def _files(view: StoreView, folder: str) -> Iterator[str]:
    ends = {layout.RECORDS: layout.RECORD_END, layout.LOGS: layout.SEGMENT_END, layout.ROWS: layout.ROW_END}
    depth = 2 if folder == layout.ROWS else 1
    folders = [folder]
    for _ in range(depth):
        folders = [f"{above}/{name}" for above in folders for name in view.names(above)]
    for inner in folders:
        yield from (f"{inner}/{name}" for name in view.names(inner) if name.endswith(ends.get(folder, "")))
