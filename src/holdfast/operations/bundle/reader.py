"""The reader of a bundle: where its parts are, and whether each of them is intact.

A bundle needs random access, so a caller that reads from a pipe stores it in a file first. First
all of it is checked; then each tree is read again when its turn comes. Memory holds an index of one
tree, and the records of one.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from holdfast.backends.port import MAX_LOG_ELEMENTS, Segment, Span
from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError, NewerVersionError
from holdfast.format import frame
from holdfast.format.bundle import sections
from holdfast.format.bundle.sections import (
    BundleCounts,
    RowEntry,
    SectionHead,
    TombstoneEntry,
    TreeEntry,
    make_damage_error,
)
from holdfast.format.rows import head as rows
from holdfast.format.rows import portable
from holdfast.format.rows.portable import PortableRows
from holdfast.format.state import log_segment, record
from holdfast.format.state.manifest import BlobEntry
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.operations import snapshot_read
from holdfast.operations.read_elements import ElementChecker
from holdfast.operations.snapshot_reachability import SnapshotReachability

if TYPE_CHECKING:
    from hashlib import _Hash as Hasher

RUNS_AT_HAND = 16

ReadAt = Callable[[int, int], Awaitable[bytes]]  # offset, size → as many bytes, or fewer at the end


class SegmentPlace(NamedTuple):
    first: int
    length: int
    offset: int  # of its section


@dataclass(slots=True)
class TreeIndex:
    """The offsets of a tree's parts. Offsets are of sections."""

    entry: TreeEntry
    end: int = 0
    rows: list[RowEntry] = field(default_factory=list)
    tombstones: list[TombstoneEntry] = field(default_factory=list)
    segments: dict[int, list[SegmentPlace]] = field(default_factory=dict)
    blobs: dict[bytes, int] = field(default_factory=dict)
    records: list[int] = field(default_factory=list)


class Summary(NamedTuple):
    counts: BundleCounts
    digest: bytes  # of the whole file
    trees: list[int]  # the offsets of their sections


class BundleReader:
    def __init__(self, read: ReadAt, size: int) -> None:
        self._read = read
        self.size = size

    async def read_exactly(self, offset: int, size: int) -> bytes:
        if offset + size > self.size:
            raise make_damage_error("it ends too early")
        data = await self._read(offset, size)
        if len(data) != size:
            raise make_damage_error("it ends too early")
        return data

    async def head(self, offset: int) -> SectionHead:
        return sections.read_head(await self.read_exactly(offset, sections.HEAD_BYTES))

    async def payload(self, offset: int, kind: bytes) -> bytes:
        """Return the payload of the section at that offset, checked; it must be of that kind."""
        head = await self.head(offset)
        if head.kind != kind:
            raise make_damage_error("a section is not where it was")
        return sections.check(head, await self.read_exactly(offset + sections.HEAD_BYTES, head.size))


class RunReader:
    """The segments of one tree of a bundle; the last few are cached, inflated."""

    def __init__(self, source: BundleReader, index: TreeIndex) -> None:
        self._source = source
        self._index = index
        self._at_hand: OrderedDict[int, Segment] = OrderedDict()

    async def pieces(self, span: Span) -> AsyncIterator[bytes]:
        """Yield the bytes of a span's elements."""
        async for part, segment in self._segments(span):
            for _, piece in log_segment.payload(part, [segment]):
                yield bytes(piece)

    async def elements(self, span: Span) -> AsyncIterator[list[bytes]]:
        async for part, segment in self._segments(span):
            yield log_segment.elements(part, [segment])

    async def _segments(self, span: Span) -> AsyncIterator[tuple[Span, Segment]]:
        places = self._index.segments.get(span.log, [])
        at = max(bisect_right(places, span.first, key=lambda place: place.first) - 1, 0)
        reached = span.first
        while reached < span.end:
            if at >= len(places) or not places[at].first <= reached < places[at].first + places[at].length:
                raise make_damage_error("elements that a checkpoint refers to are missing")
            place = places[at]
            end = min(place.first + place.length, span.end)
            yield Span(span.log, reached, end), await self.run(place)
            reached, at = end, at + 1

    async def run(self, place: SegmentPlace) -> Segment:
        segment = self._at_hand.get(place.offset)
        if segment is None:
            segment = sections.read_run(await self._source.payload(place.offset, sections.ELEMENTS))
            segment = segment._replace(data=frame.frame_raw(frame.content(segment.data)))
            self._at_hand[place.offset] = segment
            if len(self._at_hand) > RUNS_AT_HAND:
                self._at_hand.popitem(last=False)
        else:
            self._at_hand.move_to_end(place.offset)
        return segment


async def index_tree(source: BundleReader, offset: int, hasher: Hasher | None = None) -> TreeIndex:
    """Return the offsets of the parts of the tree at that offset.

    With `hasher`, every section is read, checked and hashed; without it, sections that were checked
    before are only skimmed.
    """
    found: TreeIndex | None = None
    kind = sections.TREE
    while True:
        head = await source.head(offset)
        if found is not None and (head.kind == sections.TREE or head.kind not in sections.ORDER):
            break
        if sections.ORDER.find(head.kind) < sections.ORDER.index(kind):
            raise make_damage_error("its sections are not in their order")
        kind = head.kind
        is_small = kind in (sections.TREE, sections.ROWS, sections.GRAVES)
        if hasher is None and not is_small:
            size = min(head.size, max(sections.PLACE_BYTES, sections.HASH_BYTES))
            payload = await source.read_exactly(offset + sections.HEAD_BYTES, size)
        else:
            payload = await source.payload(offset, kind)
        if hasher is not None:
            hasher.update(await source.read_exactly(offset, sections.HEAD_BYTES))
            hasher.update(payload)
        if found is None:
            if kind != sections.TREE:
                raise make_damage_error("a tree is missing")
            found = TreeIndex(sections.read_tree(payload))
        else:
            _note(found, kind, payload, offset)
        offset += sections.HEAD_BYTES + head.size
    found.end = offset
    _check_counts(found)
    return found


def _note(index: TreeIndex, kind: bytes, payload: bytes, offset: int) -> None:
    if kind == sections.ROWS:
        index.rows += sections.read_rows(payload)
    elif kind == sections.GRAVES:
        index.tombstones += sections.read_tombstones(payload)
    elif kind == sections.ELEMENTS:
        log, first, count = sections.read_place(payload)
        places = index.segments.setdefault(log, [])
        if first != (places[-1].first + places[-1].length if places else 0) or not count:
            raise make_damage_error("elements are missing, or there twice")
        places.append(SegmentPlace(first, count, offset))
    elif kind == sections.BLOB:
        hash_ = payload[: sections.HASH_BYTES]
        if hash_ in index.blobs or len(hash_) != sections.HASH_BYTES:
            raise make_damage_error("a blob is there twice")
        index.blobs[hash_] = offset
    else:
        index.records.append(offset)


def _check_counts(index: TreeIndex) -> None:
    entry = index.entry
    lengths = {log: places[-1].first + places[-1].length for log, places in index.segments.items()}
    if lengths != {log: length for log, length in enumerate(entry.logs) if length}:
        raise make_damage_error("elements are missing")
    if max(entry.logs, default=0) > MAX_LOG_ELEMENTS:
        raise make_damage_error("a log has too many elements")
    if (len(index.rows), len(index.tombstones), len(index.blobs)) != (entry.rows, entry.tombstones, entry.blobs):
        raise make_damage_error("rows or blobs are missing")


async def tree_records(
    source: BundleReader, codec: Codec, carried: PortableRows, index: TreeIndex
) -> list[tuple[bytes, StoredRecord]]:
    """Return the records of a tree, each checked; raise if its sessions have gaps."""
    found: list[tuple[bytes, StoredRecord]] = []
    for offset in index.records:
        datas = sections.read_records(await source.payload(offset, sections.RECORDS))
        found += [(data, record.unpack(codec, data)) for data in datas]
    if len(found) != index.entry.records:
        raise make_damage_error("records are missing")
    _check_tree(index, [stored for _, stored in found], carried)
    sessions = {head.session for head in index.entry.heads}
    if not all(portable.session_of(codec, row) in (None, *sessions) for row in index.rows):
        raise make_damage_error("an approval is of a session that is not there")
    return found


def _check_tree(index: TreeIndex, records: list[StoredRecord], carried: PortableRows) -> None:
    entry = index.entry
    checksums: dict[bytes, bytes] = {}
    numbers: dict[bytes, list[int]] = {head.session: [] for head in entry.heads}
    places = []
    for stored in records:
        session = rows.session_key(stored.session)
        if stored.tree != entry.tree or session not in numbers or stored.id in checksums:
            raise make_damage_error(f"checkpoint {ids.to_text(stored.id)} does not belong there")
        checksums[stored.id] = stored.header["sum"] if stored.is_tombstone else stored.checksum
        numbers[session].append(stored.sequence)
        places.append((session, stored.sequence))
    for tombstone in index.tombstones:
        if tombstone.session not in numbers or tombstone.id in checksums:
            raise make_damage_error(f"checkpoint {ids.to_text(tombstone.id)} does not belong there")
        checksums[tombstone.id] = tombstone.checksum
        numbers[tombstone.session].append(tombstone.sequence)
    for head in entry.heads:
        if sorted(numbers[head.session]) != list(range(1, head.sequence + 1)):
            raise make_damage_error(f"checkpoints of session {rows.session_name(head.session)!r:.60} are missing")
        if head.checkpoint is not None and head.checkpoint not in checksums:
            raise make_damage_error(
                f"session {rows.session_name(head.session)!r:.60} stands at a checkpoint that is not there"
            )
    for stored in records:
        known = checksums.get(stored.parent) if stored.parent is not None else None
        if known is not None and not stored.is_tombstone and not stored.header["psum"].startswith(known):
            raise make_damage_error(f"the parent of {ids.to_text(stored.id)} is not the one it was saved after")
    if places != sorted(places) or [tombstone.id for tombstone in index.tombstones] != sorted(
        tombstone.id for tombstone in index.tombstones
    ):
        raise make_damage_error("its records are not in their order")
    for row in index.rows:
        about = carried.checkpoint_of(row)
        if about is None:
            raise NewerVersionError(
                f"the file has rows of a kind ({row.space!r:.40}) that this holdfast does not know: nothing was "
                "imported. Upgrade holdfast"
            )
        if about not in checksums and about != portable.OF_THE_WHOLE_TREE:
            raise make_damage_error("a row is about a checkpoint that is not there")


async def check(
    source: BundleReader, codec: Codec, carried: PortableRows, progress: Callable[[int, int], None]
) -> Summary:
    """Read everything, and raise an error unless all of it is intact."""
    preamble = await source.read_exactly(0, min(len(sections.PREAMBLE), source.size))
    sections.check_preamble(preamble)
    hasher = hashlib.sha256(preamble)
    offset = len(sections.PREAMBLE)
    announced = sections.read_header(await source.payload(offset, sections.HEADER))
    size = sections.HEAD_BYTES + (await source.head(offset)).size
    hasher.update(await source.read_exactly(offset, size))
    offset += size
    counts, trees, before = BundleCounts(), list[int](), b""
    for _ in range(announced):
        trees.append(offset)
        index = await index_tree(source, offset, hasher)
        if index.entry.tree <= before:
            raise make_damage_error("its trees are not in their order")
        before, offset = index.entry.tree, index.end
        counts = counts.add(await _check_contents(source, codec, carried, index))
        progress(offset, source.size)
    stated, digest = sections.read_trailer(await source.payload(offset, sections.TRAILER))
    size = sections.HEAD_BYTES + (await source.head(offset)).size
    if stated != counts or digest != hasher.digest():
        raise make_damage_error("its trailer does not match what stands before it")
    hasher.update(await source.read_exactly(offset, size))
    if offset + size != source.size:
        raise make_damage_error("something follows its end")
    return Summary(counts, hasher.digest(), trees)


def file_reach(source: BundleReader, index: TreeIndex) -> SnapshotReachability:
    """Return the parts of a tree's snapshots, read from the bundle."""

    async def fetch(hashes: Sequence[bytes]) -> list[bytes]:
        contents = []
        for hash_ in hashes:
            if hash_ not in index.blobs:
                raise make_damage_error("blobs of a snapshot are missing")
            payload = await source.payload(index.blobs[hash_], sections.BLOB)
            contents.append(frame.content(payload[sections.HASH_BYTES :], limit=frame.MAX_OF_SNAPSHOT))
            if hashlib.sha256(contents[-1]).digest() != hash_:
                raise make_damage_error(f"the blob {hash_.hex()[:12]} is not what was saved")
        return contents

    return SnapshotReachability(fetch, at_once=1)  # a file may claim the most for each of them


async def _check_contents(source: BundleReader, codec: Codec, carried: PortableRows, index: TreeIndex) -> BundleCounts:
    records = await tree_records(source, codec, carried, index)
    content = ElementChecker(RunReader(source, index).pieces)
    files = file_reach(source, index)
    blobs: dict[bytes, BlobEntry] = {}
    live = 0
    for _, stored in records:
        if stored.is_tombstone:
            continue
        live += 1
        try:
            manifest = stored.manifest()
            await content.check(manifest)
            if (reference := snapshot_read.reference_of(stored)) is not None:
                await files.learn(reference)
        except CorruptError as error:
            raise make_damage_error(f"of checkpoint {ids.to_text(stored.id)}: {error}") from error
        if any(span.log >= len(index.entry.logs) for span in manifest.spans()):
            raise make_damage_error("a checkpoint refers to a log that is not there")
        blobs.update((blob.hash, blob) for blob in manifest.blobs)
    blobs |= {hash_: BlobEntry(hash_, size) for hash_, size in files.list_all().items()}
    if blobs.keys() != index.blobs.keys():
        raise make_damage_error("blobs are missing, or unreferenced")
    for hash_, offset in index.blobs.items():
        data = await source.payload(offset, sections.BLOB)
        whole = frame.content(data[sections.HASH_BYTES :], limit=blobs[hash_].size)
        if hashlib.sha256(whole).digest() != hash_ or len(whole) != blobs[hash_].size:
            raise make_damage_error(f"the blob {hash_.hex()[:12]} is not what was saved")
    return BundleCounts(
        1,
        len(index.entry.heads),
        live,
        len(records) - live + len(index.tombstones),
        sum(index.entry.logs),
        len(index.blobs),
        len(index.rows),
    )
