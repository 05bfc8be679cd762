"""The order in which records came to be there: the file `order`, the id of one record after the other.

An entry is 20 bytes: the id, and a CRC-32 of its position and the id. The entry of position 1 comes first, so that a
position is found without a search. Room is made before it is needed, in the stage of a commit that may still fail (a
full disk is met there); what is not used yet is zero. Entries are written when the commit is carried out, at places
that its journal names: doing it twice is harmless, and whenever no journal is pending every record has its entry, and no
entry is of a record that never was. Entries are never changed: that of a deleted record stays, and should the same id be
saved again, the first lines of the record tell which of the two entries is its own.

Once many of the first entries are those of deleted records, the file is written anew without them. Then it begins with
how many are left out, as if that were the entry of position 0: `LEFT_OUT` and the number in the place of an id.

The entries of a commit are synced before its journal is removed. This is the one fsync that the order costs: it comes
before those of the folders, which have less left to do after it.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from holdfast.backends.files import envelope, layout
from holdfast.backends.files.disk import Disk
from holdfast.backends.port import Change, Record
from holdfast.errors import CorruptError

ID_SIZE = 16
SIZE = 20
FREE = bytes(SIZE)
ROOM_AT_ONCE = 200  # entries: 4,000 bytes
LEFT_OUT = b"left out"


def entry(position: int, id_: bytes) -> bytes:
    return id_ + _checksum(position, id_)


def _place(left_out: int, position: int) -> int:
    """Where the entry of a position begins."""
    return (position - left_out) * SIZE if left_out else (position - 1) * SIZE


def _left_out(descriptor: int) -> int:
    """How many entries the file does not have, because the records of the first ones were deleted."""
    first = os.pread(descriptor, SIZE, 0)
    id_ = first[:ID_SIZE]
    is_number = id_.startswith(LEFT_OUT) and first[ID_SIZE:] == _checksum(0, id_)
    return int.from_bytes(id_[len(LEFT_OUT) :], "big") if is_number else 0


def last_position(disk: Disk) -> int:
    """The position of the record that came last, 0 if there was none."""
    with disk.reading(layout.ORDER) as descriptor:
        if descriptor is None:
            return 0

        def is_free(at: int) -> bool:
            return os.pread(descriptor, SIZE, at * SIZE) == FREE

        left_out = _left_out(descriptor)
        used = bisect_left(range(os.fstat(descriptor).st_size // SIZE), True, key=is_free)
        return used - 1 + left_out if left_out else used


def has_news(disk: Disk, after: int) -> bool:
    """Whether there may be a record beyond that position. No lock is needed: who comes a moment too early asks again."""
    if disk.info(layout.JOURNAL) is not None:
        return True
    with disk.reading(layout.ORDER) as descriptor:
        if descriptor is None:
            return False
        left_out = _left_out(descriptor)
        return os.pread(descriptor, SIZE, _place(left_out, max(after, left_out) + 1)) not in (b"", FREE)


def changes(disk: Disk, after: int, limit: int) -> list[Change]:
    found: list[Change] = []
    for position, id_ in _entries(disk, after):
        if len(found) == limit:
            break
        path = layout.record_path(id_)
        raw = disk.read(path)
        if raw is None:  # it was deleted
            continue
        try:
            record, about = envelope.read_record(raw, path)
        except CorruptError:
            # Passed on as it is: whoever reads it finds out, and a damaged record hides none of those that follow.
            found.append(Change(position, Record(id_, b"", 0, raw)))
            continue
        if about.get(envelope.POSITION, position) == position:
            found.append(Change(position, record))
    return found


def make_room(disk: Disk, last: int) -> None:
    """Sees to it that entries up to this position can be written without taking more space."""
    info = disk.info(layout.ORDER)
    size = info.size if info else 0
    missing = _place(_left_out_of(disk), last + 1) - size
    if missing > 0:
        begun = size % SIZE  # of an entry, by somebody who could not go on
        rounds = -(-missing // (ROOM_AT_ONCE * SIZE))
        disk.write_at(layout.ORDER, size - begun, bytes(rounds * ROOM_AT_ONCE * SIZE))
        if info is None:
            disk.sync_folder("")


def put(disk: Disk, first: int, ids: Sequence[bytes]) -> None:
    """Writes the entries of these records, from this position on."""
    data = b"".join(entry(first + number, id_) for number, id_ in enumerate(ids))
    disk.write_at(layout.ORDER, _place(_left_out_of(disk), first), data)


def _left_out_of(disk: Disk) -> int:
    with disk.reading(layout.ORDER) as descriptor:
        return _left_out(descriptor) if descriptor is not None else 0


def shorten(disk: Disk) -> None:
    """Leaves out the first entries, if many of them are those of deleted records. To be called under the exclusive lock
    and while no journal is pending. Readers without a lock find the file as it was, or as it is."""
    before = left_out = _left_out_of(disk)
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


def build(disk: Disk, ids: Iterator[bytes]) -> None:
    """Makes the order of a store that has none: older than orders are, or somebody moved it away because it was damaged.
    Records that know their position get it again; the others come first, in the order of their ids, which is that of
    time."""
    places: dict[int, bytes] = {}
    others: list[bytes] = []
    for id_ in ids:
        path = layout.record_path(id_)
        raw = disk.read(path)
        try:
            position = envelope.read_record(raw, path).about.get(envelope.POSITION) if raw is not None else None
        except CorruptError:
            position = None
        if isinstance(position, int) and position > 0:
            places[position] = id_
        else:
            others.append(id_)
    if not places and not others:
        return
    free = (number for number in range(1, max(places, default=0) + len(others) + 1) if number not in places)
    places |= dict(zip(free, sorted(others), strict=False))
    nobody = bytes(ID_SIZE)
    last = max(places)
    room = -(-last // ROOM_AT_ONCE) * ROOM_AT_ONCE - last
    built = b"".join(entry(position, places.get(position, nobody)) for position in range(1, last + 1))
    _replace(disk, built + FREE * room)


def _replace(disk: Disk, content: bytes) -> None:
    staged = f"{layout.STAGED}/order"
    disk.create(staged, content)
    disk.move(staged, layout.ORDER)
    disk.sync_folder("")


def _entries(disk: Disk, after: int) -> Iterator[tuple[int, bytes]]:
    with disk.reading(layout.ORDER) as descriptor:
        left_out = _left_out(descriptor) if descriptor is not None else 0
        position = max(after, left_out)
        while descriptor is not None:
            page = os.pread(descriptor, ROOM_AT_ONCE * SIZE, _place(left_out, position + 1))
            for at in range(0, len(page) - SIZE + 1, SIZE):
                data = page[at : at + SIZE]
                if data == FREE:
                    return
                position += 1
                id_ = data[:ID_SIZE]
                if data[ID_SIZE:] != _checksum(position, id_):
                    raise CorruptError(
                        f"the file {disk.at(layout.ORDER)} is damaged: its entry {position} is not what was written. "
                        "Move the file away while nobody uses the store: it is built again from the records when the "
                        "store is opened"
                    )
                yield position, id_
            if len(page) < ROOM_AT_ONCE * SIZE:
                return


def _checksum(position: int, id_: bytes) -> bytes:
    return zlib.crc32(id_, zlib.crc32(position.to_bytes(8, "big"))).to_bytes(4, "big")
