"""The envelope of our own files: two readable lines (`head -2`), one of them a checksum.

    holdfast row 1 crc32 5d2f08a1
    {"space":"head","tree":"…","key":"run-001","version":3}
    the value, as it is

The checksum covers the second line and, except for records, the content. A record's data is
verified by the layer that made it, and must reach that layer even if damaged. Bytes in the second
line are percent-encoded.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from holdfast.backends.files import layout
from holdfast.backends.port import Record, RecordWrite, Row, RowKey
from holdfast.errors import CorruptError

VERSION = 1
POSITION = "position"
FEED = "feed"
# Errors of a foreign second line: a missing part, one of another type, or an endless number.
_INCOMPLETE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


class RecordFile(NamedTuple):
    record: Record
    about: dict[str, Any]


def wrap(kind: str, about: dict[str, Any], content: bytes = b"", *, cover_content: bool = True) -> bytes:
    line = json.dumps(about, separators=(",", ":")).encode() + b"\n"
    checksum = zlib.crc32(content, zlib.crc32(line)) if cover_content else zlib.crc32(line)
    return b"holdfast %s %d crc32 %08x\n%s%s" % (kind.encode(), VERSION, checksum, line, content)


def unwrap(kind: str, raw: bytes, path: str, *, content_covered: bool = True) -> tuple[dict[str, Any], bytes]:
    """Return the second line and the content; raise `CorruptError` for anything that `wrap` did not make."""
    first, _, rest = raw.partition(b"\n")
    words = first.split(b" ")
    if len(words) != 5 or words[0] != b"holdfast" or words[1] != kind.encode() or words[3] != b"crc32":
        raise _make_damage_error(path, f"it does not begin as a {kind} does")
    line, newline, content = rest.partition(b"\n")
    covered = rest if content_covered else line + newline
    if words[2] != b"%d" % VERSION or words[4] != b"%08x" % zlib.crc32(covered):
        raise _make_damage_error(path, "its checksum is another")
    try:
        about = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _make_damage_error(path, "its second line is not JSON") from error
    if not isinstance(about, dict):
        raise _make_damage_error(path, "its second line is not an object")
    return about, content


def row_file(key: RowKey, row: Row) -> bytes:
    about = {"space": key.space, "tree": key.tree.hex(), "key": quote_from_bytes(key.key), "version": row.version}
    return wrap("row", about, row.value)


def read_row(raw: bytes, path: str) -> tuple[RowKey, Row]:
    """Read a row; raise `CorruptError` also if its file was renamed or swapped."""
    about, value = unwrap("row", raw, path)
    try:
        key = RowKey(about["space"], unquote_to_bytes(about["key"]), bytes.fromhex(about["tree"]))
        row = Row(value, int(about["version"]))
        place = layout.row_path(key)
    except _INCOMPLETE as error:
        raise _make_damage_error(path, "its second line is incomplete") from error
    if place != path:
        raise _make_damage_error(path, f"it holds the row {key.space}/{about['key']:.80}, which belongs elsewhere")
    return key, row


def record_file(write: RecordWrite, known: RecordFile | None, position: int | None) -> bytes:
    """Return the bytes of a record's file; `position` is that of a new record.

    A record that replaces another keeps its position, and its labels if it brings none.
    """
    session, sequence = (known.record.session, known.record.sequence) if known else (write.session, write.sequence)
    about: dict[str, Any] = known.about if known else {}
    if write.labels is not None:
        labels = write.labels._asdict()
        labels["parent"] = write.labels.parent.hex() if write.labels.parent is not None else None
        about = {**about, **labels}
    if write.expires_at_us is not None:
        about = {**about, "expires_at_us": write.expires_at_us}
    place = {"id": write.id.hex(), "session": quote_from_bytes(session), "sequence": sequence}
    if position is not None:
        place[POSITION] = position
        if write.feed is not None:
            place[FEED] = quote_from_bytes(write.feed)
    return wrap("record", {**about, **place}, write.data, cover_content=False)


def read_record(raw: bytes, path: str) -> RecordFile:
    """Read a record; raise `CorruptError` also if its id or session's number belongs elsewhere."""
    about, data = unwrap("record", raw, path, content_covered=False)
    try:
        id_, session = bytes.fromhex(about["id"]), unquote_to_bytes(about["session"])
        record = Record(id_, session, int(about["sequence"]), data)
    except _INCOMPLETE as error:
        raise _make_damage_error(path, "its second line is incomplete") from error
    if path not in (layout.record_path(id_), layout.session_path(session, record.sequence)):
        raise _make_damage_error(path, f"it holds the record {about['id']}, which belongs elsewhere")
    return RecordFile(record, about)


def feed_of(about: dict[str, Any]) -> bytes | None:
    """Return the feed that a record was written with."""
    feed = about.get(FEED)
    return unquote_to_bytes(feed) if isinstance(feed, str) else None


def _make_damage_error(path: str, why: str) -> CorruptError:
    return CorruptError(f"{path} is damaged: {why}. Put the file back from a backup; the rest of the store is unharmed")
