"""Bundles: the contents of trees as one portable stream of bytes. Pure: sections to bytes and back.

    magic (8)   version (1)
    sections, each:  kind (1)   size of the payload (u32)   CRC-32 of kind, size, payload (u32)   payload

    H  header       how many trees follow
    T  a tree       its id, its sessions' heads, the lengths of its logs, how much of each kind follows
    W  rows         about the tree's checkpoints, in batches
    G  graves       the remains of checkpoints that were collected, in batches
    E  elements     log, first, count (three u32), a segment of them in a frame
    B  a blob       its hash, a frame
    R  records      of the tree, in batches; their manifests refer to the tree's `E` sections
    Z  trailer      counts, SHA-256 of everything before it

Integers are little-endian. The payload of H, T, W, R and Z is a frame of MessagePack. A tree is T,
then W, G, E, B, R. The same content gives the same bytes from any store: docs/format.md says how.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import ormsgpack

from holdfast.backends.port import Segment
from holdfast.errors import CorruptError, NewerVersionError, UsageError
from holdfast.format import frame
from holdfast.format.rows.packed_tombstones import CHECKSUM_SIZE

MAGIC = b"\x89HFAST\r\n"  # the first bytes reveal a transfer as text, or one that cuts the eighth bit
VERSION = 1
PREAMBLE = MAGIC + bytes((VERSION,))
HEADER, TREE, ROWS, GRAVES, ELEMENTS, BLOB, RECORDS, TRAILER = b"H", b"T", b"W", b"G", b"E", b"B", b"R", b"Z"
ORDER = TREE + ROWS + GRAVES + ELEMENTS + BLOB + RECORDS  # of the sections of a tree
BATCH_BYTES = 256 * 1024
_HEAD = struct.Struct("<cII")
HEAD_BYTES = _HEAD.size
_PLACE = struct.Struct("<III")
PLACE_BYTES = _PLACE.size
HASH_BYTES = 32


class SectionHead(NamedTuple):
    kind: bytes
    size: int
    crc: int


class HeadEntry(NamedTuple):
    """The head of a session, without its lease, which belongs to a store."""

    session: bytes
    checkpoint: bytes | None
    sequence: int


class RowEntry(NamedTuple):
    """A row of the tree, or with `of_store` a row of the store about it; `content` has no CRC."""

    space: str
    key: bytes
    content: bytes
    of_store: bool


class TreeEntry(NamedTuple):
    tree: bytes
    heads: tuple[HeadEntry, ...]
    logs: tuple[int, ...]  # how many elements each has
    rows: int
    tombstones: int
    blobs: int
    records: int


class TombstoneEntry(NamedTuple):
    """The remains of an expired and collected checkpoint; `checksum` is the beginning of its checksum."""

    id: bytes
    session: bytes
    sequence: int
    parent: bytes | None
    when_us: int
    why: str
    checksum: bytes


class BundleCounts(NamedTuple):
    """The contents of a bundle, in numbers."""

    trees: int = 0
    sessions: int = 0
    checkpoints: int = 0
    tombstones: int = 0
    elements: int = 0
    blobs: int = 0
    rows: int = 0

    def add(self, other: BundleCounts) -> BundleCounts:
        return BundleCounts(*(a + b for a, b in zip(self, other, strict=True)))


# -- sections --------------------------------------------------------------------------------------------------------


def section(kind: bytes, payload: bytes) -> bytes:
    if len(payload) >= 1 << 32:
        raise UsageError("a checkpoint has a part of more than 4 GB, which a portable file can't hold")
    size = len(payload).to_bytes(4, "little")
    crc = zlib.crc32(payload, zlib.crc32(kind + size))
    return b"".join((kind, size, crc.to_bytes(4, "little"), payload))


def read_head(data: bytes) -> SectionHead:
    return SectionHead(*_HEAD.unpack(data))


def check(head: SectionHead, payload: bytes) -> bytes:
    size = len(payload).to_bytes(4, "little")
    if len(payload) != head.size or zlib.crc32(payload, zlib.crc32(head.kind + size)) != head.crc:
        raise make_damage_error("the CRC of a section does not match")
    return payload


def check_preamble(data: bytes) -> None:
    if data[: len(MAGIC)] != MAGIC:
        raise UsageError(
            "this is no file that `holdfast export` wrote: it begins with other bytes. Nothing was imported"
        )
    version = data[len(MAGIC)] if len(data) > len(MAGIC) else 0
    if version > VERSION:
        raise NewerVersionError(
            f"the file has format {version}, this holdfast knows {VERSION}: nothing was imported. Upgrade holdfast, or "
            "export again with this one"
        )
    if version != VERSION:
        raise make_damage_error("it has no version")


def make_damage_error(why: str) -> CorruptError:
    return CorruptError(
        f"the file is damaged or incomplete: {why}. Nothing of it was taken over; copy it again, or export again"
    )


# -- contents --------------------------------------------------------------------------------------------------------


def pack(value: Any) -> bytes:
    return frame.compress(ormsgpack.packb(value))


def unpack(payload: bytes) -> Any:
    try:
        return ormsgpack.unpackb(frame.content(payload))
    except ValueError as error:
        raise make_damage_error(f"a section can't be read ({error})") from error


def header(trees: int) -> bytes:
    return section(HEADER, pack([trees]))


def trailer(counts: BundleCounts, digest: bytes) -> bytes:
    return section(TRAILER, pack([*counts, digest]))


def read_header(payload: bytes) -> int:
    match unpack(payload):
        case [int(trees)] if trees >= 0:
            return trees
    raise make_damage_error("its header can't be read")


def read_trailer(payload: bytes) -> tuple[BundleCounts, bytes]:
    match unpack(payload):
        case [*counts, bytes(digest)] if len(counts) == len(BundleCounts._fields):
            return BundleCounts(*counts), digest
    raise make_damage_error("its trailer can't be read")


def tree(entry: TreeEntry) -> bytes:
    return section(TREE, pack([entry.tree, [list(head) for head in entry.heads], entry.logs, *entry[3:]]))


def read_tree(payload: bytes) -> TreeEntry:
    try:
        id_, heads, logs, *counts = unpack(payload)
        entry = TreeEntry(id_, tuple(HeadEntry(*head) for head in heads), tuple(logs), *counts)
    except (ValueError, TypeError) as error:
        raise make_damage_error("a tree can't be read") from error
    sound = _is_id(entry.tree) and all(type(number) is int and number >= 0 for number in (*logs, *entry[3:]))
    for head in entry.heads:
        sound = sound and type(head.session) is bytes and (head.checkpoint is None or _is_id(head.checkpoint))
        sound = sound and type(head.sequence) is int and head.sequence > 0
    names = [head.session for head in entry.heads] if sound else []
    if not sound or names != sorted(set(names)) or not names:
        raise make_damage_error("a tree has no id, or sessions that are none")
    return entry


def rows(entries: Iterable[RowEntry]) -> Iterator[bytes]:
    for batch in batches(entries, lambda row: len(row.key) + len(row.content) + 16):
        yield section(ROWS, pack([list(row) for row in batch]))


def read_rows(payload: bytes) -> list[RowEntry]:
    try:
        entries = [RowEntry(*row) for row in unpack(payload)]
    except TypeError as error:
        raise make_damage_error("rows can't be read") from error
    if not all(list(map(type, row)) == [str, bytes, bytes, bool] for row in entries):
        raise make_damage_error("rows can't be read")
    return entries


def pack_tombstones(entries: Iterable[TombstoneEntry]) -> Iterator[bytes]:
    for batch in batches(entries, lambda tombstone: 80 + len(tombstone.session)):
        yield section(GRAVES, pack([list(tombstone) for tombstone in batch]))


def read_tombstones(payload: bytes) -> list[TombstoneEntry]:
    try:
        entries = [TombstoneEntry(*tombstone) for tombstone in unpack(payload)]
    except TypeError as error:
        raise make_damage_error("tombstones can't be read") from error
    for tombstone in entries:
        types = list(map(type, tombstone._replace(parent=tombstone.parent or b"")))
        if types != [bytes, bytes, int, bytes, int, str, bytes] or not _is_sound(tombstone):
            raise make_damage_error("tombstones can't be read")
    return entries


def _is_sound(tombstone: TombstoneEntry) -> bool:
    """Return whether it can be packed here as well."""
    are_ids = _is_id(tombstone.id) and (tombstone.parent is None or _is_id(tombstone.parent))
    in_range = 0 < tombstone.sequence < 1 << 62 and abs(tombstone.when_us) < 1 << 62
    return are_ids and in_range and len(tombstone.checksum) == CHECKSUM_SIZE


def records(datas: Iterable[bytes]) -> Iterator[bytes]:
    for batch in batches(datas, len):
        yield section(RECORDS, pack(list(batch)))


def read_records(payload: bytes) -> list[bytes]:
    datas = unpack(payload)
    if type(datas) is not list or not all(type(data) is bytes for data in datas):
        raise make_damage_error("records can't be read")
    return datas


def elements(log: int, first: int, count: int, segment: bytes) -> bytes:
    return section(ELEMENTS, _PLACE.pack(log, first, count) + segment)


def read_place(payload: bytes) -> tuple[int, int, int]:
    """Return log, first and count of an `E` section, from its first bytes."""
    if len(payload) < PLACE_BYTES:
        raise make_damage_error("elements can't be read")
    log, first, count = _PLACE.unpack(payload[:PLACE_BYTES])
    return log, first, count


def read_run(payload: bytes) -> Segment:
    _, first, count = read_place(payload)
    return Segment(first, count, payload[PLACE_BYTES:])


def blob(hash_: bytes, framed: bytes) -> bytes:
    return section(BLOB, hash_ + framed)


def batches(items: Iterable[Any], size_of: Any) -> Iterator[Sequence[Any]]:
    """Yield the items in batches of at least `BATCH_BYTES`; the last one may be smaller.

    The batches are a function of the items.
    """
    batch: list[Any] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_id(value: object) -> bool:
    return type(value) is bytes and len(value) == 16
