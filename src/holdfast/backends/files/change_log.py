"""The change log: the file `order`, which lists record ids in the order in which they appeared.

An entry is 20 bytes: the id, and a CRC-32 of its position and the id. The entry of position 1 comes
first, so a position is found without a search. Space is allocated ahead, in the stage of a commit
that may still fail (a full disk shows there); unused space is zero. Entries are written when the
commit is carried out, at places that its journal names: doing it twice is harmless. Whenever no
journal is pending, every record has its entry, and every entry is of a record that existed. Entries
never change: that of a deleted record stays. If the same id is saved again, the first lines of the
record tell which of the two entries is its own.

Once many of the first entries are those of deleted records, the file is rewritten without them. It
then begins with the number of dropped entries, as if that were the entry of position 0: `LEFT_OUT`
and the number, where an id would be.

A store without the file (an old one, or one whose damaged file was moved away) gets one from its
next writer; until then a reader rebuilds it from the records each time.

The entries of a commit are synced before its journal is removed. This is the one fsync that the
order costs. It comes before those of the folders, which have less left to do after it.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from holdfast.backends.files import envelope, layout, queries
from holdfast.backends.files.disk import Disk, FileReader
from holdfast.backends.files.write_set import StoreView
from holdfast.backends.port import Change, Record
from holdfast.errors import CorruptError

ID_SIZE = layout.ID_BYTES
SIZE = 20
FREE = bytes(SIZE)
ROOM_AT_ONCE = 200  # entries: 4,000 bytes
LEFT_OUT = b"left out"
# A rebuilt order may have gaps: this many positions, and this many more for each record.
MOST_DELETED = 1_000_000
DELETED_BETWEEN = 1_000


def entry(position: int, id_: bytes) -> bytes:
    return id_ + _checksum(position, id_)


def _place(left_out: int, position: int) -> int:
    """Return the offset of the entry of a position."""
    return (position - left_out) * SIZE if left_out else (position - 1) * SIZE


def _count_dropped(file: FileReader) -> int:
    """Return how many entries were dropped because the first records were deleted."""
    first = file.read_at(SIZE, 0)
    id_ = first[:ID_SIZE]
    is_number = id_.startswith(LEFT_OUT) and first[ID_SIZE:] == _checksum(0, id_)
    return int.from_bytes(id_[len(LEFT_OUT) :], "big") if is_number else 0


class _BuiltOrder(NamedTuple):
    """An order without a file."""

    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read_at(self, length: int, offset: int) -> bytes:
        return self.content[offset : offset + length]


@contextmanager
def _open_order(view: StoreView) -> Iterator[FileReader]:
    """Yield the order, from its file or rebuilt."""
    with view.open_to_read(layout.ORDER) as file:
        yield _BuiltOrder(_build_order(view)) if file is None else file


def last_position(view: StoreView) -> int:
    """Return the position of the newest record, 0 if there was none."""
    with _open_order(view) as file:

        def is_free(at: int) -> bool:
            return file.read_at(SIZE, at * SIZE) == FREE

        left_out = _count_dropped(file)
        used = bisect_left(range(file.size // SIZE), True, key=is_free)
        return used - 1 + left_out if left_out else used


def has_news(disk: Disk, after: int) -> bool:
    """Return whether there may be a record beyond a position.

    No lock is needed: a caller that comes a moment too early asks again.
    """
    if disk.info(layout.JOURNAL) is not None:
        return True
    with disk.open_to_read(layout.ORDER) as file:
        if file is None:  # then the records must be read
            return True
        left_out = _count_dropped(file)
        return file.read_at(SIZE, _place(left_out, max(after, left_out) + 1)) not in (b"", FREE)


def changes(view: StoreView, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
    return _records_of(view, _entries(view, after) if feed is None else _feed_entries(view, feed, after), limit)


def _feed_entries(view: StoreView, feed: bytes, after: int) -> Iterator[tuple[int, bytes]]:
    """Yield the entries of a feed after a position: the names of links to its records."""
    first = layout.feed_folder(feed, after + 1).rpartition("/")[2]
    folder = layout.feed_folder(feed)
    for part in sorted(name for name in view.names(folder) if name >= first):
        entries = (layout.feed_entry_in(name) for name in view.names(f"{folder}/{part}"))
        yield from sorted(entry for entry in entries if entry is not None and entry[0] > after)


def recent(view: StoreView, before: int | None, limit: int) -> list[Change]:
    """Return the records below a position, the newest first."""
    end = last_position(view) + 1
    return _records_of(view, _entries_backwards(view, end if before is None else min(before, end)), limit)


def _entries_backwards(view: StoreView, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the entries below position `end`, the last one first, read in pages."""
    with _open_order(view) as file:
        first_left = _count_dropped(file) + 1
    while end > first_left:
        start = max(end - ROOM_AT_ONCE, first_left)
        page = list(islice(_entries(view, start - 1), end - start))
        yield from reversed(page)
        end = start


def _records_of(view: StoreView, entries: Iterator[tuple[int, bytes]], limit: int) -> list[Change]:
    """Return the records of these entries that still exist, at most `limit`."""
    found: list[Change] = []
    for position, id_ in entries:
        if len(found) == limit:
            break
        path = layout.record_path(id_)
        raw = view.read(path)
        if raw is None:  # it was deleted
            continue
        try:
            record, about = envelope.read_record(raw, path)
        except CorruptError:
            # Passed on as it is: its reader detects the damage, and a damaged record hides none of those that
            # follow.
            found.append(Change(position, Record(id_, b"", 0, raw)))
            continue
        if about.get(envelope.POSITION, position) == position:
            found.append(Change(position, record))
    return found


def make_room(disk: Disk, last: int) -> None:
    """Allocate space for entries up to this position, so that writing them takes no more."""
    info = disk.info(layout.ORDER)
    size = info.size if info else 0
    missing = _place(_read_dropped(disk), last + 1) - size
    if missing > 0:
        begun = size % SIZE  # a partial entry of an interrupted writer
        rounds = -(-missing // (ROOM_AT_ONCE * SIZE))
        disk.write_at(layout.ORDER, size - begun, bytes(rounds * ROOM_AT_ONCE * SIZE))
        if info is None:
            disk.sync_folder("")


def put(disk: Disk, first: int, ids: Sequence[bytes]) -> None:
    """Write the entries of these records, from this position on."""
    with _open_order(disk) as file:
        at, data = entries(file, first, ids)
    disk.write_at(layout.ORDER, at, data)


def entries(file: FileReader, first: int, ids: Sequence[bytes]) -> tuple[int, bytes]:
    """Return the offset of these records' entries in the order, and their bytes."""
    data = b"".join(entry(first + number, id_) for number, id_ in enumerate(ids))
    return _place(_count_dropped(file), first), data


def _read_dropped(disk: Disk) -> int:
    with _open_order(disk) as file:
        return _count_dropped(file)


def shorten(disk: Disk) -> None:
    """Drop the first entries, if many of them are those of deleted records.

    The caller holds the exclusive lock, and no journal is pending. Readers without a lock find the
    old file or the new one.
    """
    before = left_out = _read_dropped(disk)
    for position, id_ in _entries(disk, before):
        if disk.info(layout.record_path(id_)) is not None:
            break
        left_out = position
    if left_out - before < ROOM_AT_ONCE:
        return
    kept = [entry(position, id_) for position, id_ in _entries(disk, left_out)]
    room = -(-(1 + len(kept)) // ROOM_AT_ONCE) * ROOM_AT_ONCE - 1 - len(kept)
    begin = entry(0, LEFT_OUT + left_out.to_bytes(ID_SIZE - len(LEFT_OUT), "big"))
    _replace(disk, begin + b"".join(kept) + FREE * room)


def build(disk: Disk) -> None:
    """Create the order of a store that has none."""
    built = _build_order(disk)
    if built:
        _replace(disk, built)


def _build_order(view: StoreView) -> bytes:
    """Build the order from the records; empty if there are none.

    Records that know their position keep it. The others come first, in the order of their ids,
    which is that of time.
    """
    places: dict[int, bytes] = {}
    others: list[bytes] = []
    for id_ in queries.ids(view):
        path = layout.record_path(id_)
        raw = view.read(path)
        try:
            position = envelope.read_record(raw, path).about.get(envelope.POSITION) if raw is not None else None
        except CorruptError:
            position = None
        if isinstance(position, int) and position > 0:
            places[position] = id_
        else:
            others.append(id_)
    if not places and not others:
        return b""
    free = (number for number in range(1, max(places, default=0) + len(others) + 1) if number not in places)
    places |= dict(zip(free, sorted(others), strict=False))
    no_record = bytes(ID_SIZE)
    last = max(places)
    if last > MOST_DELETED + DELETED_BETWEEN * len(places):
        raise CorruptError(
            f"{view.resolve(layout.record_path(places[last]))} says that it is record {last:,} of a store that has "
            f"{len(places):,}, and "
            f"there is no file {layout.ORDER!r}: it was not written by holdfast. Put both back from a backup"
        )
    room = -(-last // ROOM_AT_ONCE) * ROOM_AT_ONCE - last
    return b"".join(entry(position, places.get(position, no_record)) for position in range(1, last + 1)) + FREE * room


def _replace(disk: Disk, content: bytes) -> None:
    staged = f"{layout.STAGED}/order"
    disk.create(staged, content)
    disk.move(staged, layout.ORDER)
    disk.sync_folder("")


def _entries(view: StoreView, after: int) -> Iterator[tuple[int, bytes]]:
    with _open_order(view) as file:
        left_out = _count_dropped(file)
        position = max(after, left_out)
        while True:
            page = file.read_at(ROOM_AT_ONCE * SIZE, _place(left_out, position + 1))
            for at in range(0, len(page) - SIZE + 1, SIZE):
                data = page[at : at + SIZE]
                if data == FREE:
                    return
                position += 1
                id_ = data[:ID_SIZE]
                if data[ID_SIZE:] != _checksum(position, id_):
                    raise CorruptError(
                        f"the file {view.resolve(layout.ORDER)} is damaged: its entry {position} is not what was "
                        "written. Move the file away while no process uses the store: it is built again from the "
                        "records"
                    )
                yield position, id_
            if len(page) < ROOM_AT_ONCE * SIZE:
                return


def _checksum(position: int, id_: bytes) -> bytes:
    return zlib.crc32(id_, zlib.crc32(position.to_bytes(8, "big"))).to_bytes(4, "big")
