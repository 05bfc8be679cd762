"""Graves: tombstones packed into few rows. Pure.

A tombstone that can no longer be undone need not be a record. Garbage collection packs those of a
tree into rows of the space `graves`, up to `PER_PACK` in each, as columns: values that are equal in
all of them take no space. Compressed, a tombstone is only the random part of an id and the beginning of
a checksum: about 17 bytes.

A row's key is four bytes and the greatest id in it. The packs of a tree that begin with the same
four bytes are in order and don't overlap: the first one whose key is not less than an id is the
only one that may hold it. The four bytes are the tag of the tree (`model/ids.py`), which is in the
id too, so that an id is found without knowing its tree. For foreign ids, which carry no tag of
their tree, they are zeros.

A tree with packed tombstones has one more row, whose key is the tag alone: how many there are. Every packing
rewrites it, so that two concurrent collections can't rearrange the packs of one tree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import ormsgpack

from holdfast.backends.port import ABSENT, Row, RowKey, RowWrite
from holdfast.errors import CorruptError, NewerVersionError
from holdfast.format import frame
from holdfast.format.rows import head
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids

VERSION = 1
PER_PACK = 512
ABOUT_BYTES = 20  # the size of one, for estimates
CHECKSUM_SIZE = 12  # of the 32 bytes, which don't compress: enough to tell which checkpoint it was
FOREIGN = bytes(4)  # no tag: these have the variant bits of a UUID
MAX_CONTENT = 1 << 26
_MAX_VARINT = 10


class PackedTombstone(NamedTuple):
    """The remains of an expired checkpoint."""

    id: bytes
    session: bytes
    sequence: int
    parent: bytes | None
    when_us: int  # to the millisecond
    why: str
    checksum: bytes  # its first bytes

    def make_record(self, tree: bytes) -> StoredRecord:
        """Return the tombstone as a record. It no longer has a name, a step or a time of its own."""
        header: dict[str, Any] = {"id": self.id, "seq": self.sequence, "session": head.session_name(self.session)}
        if self.id != tree:
            header["tree"] = tree
        if self.parent is not None:
            header["parent"] = self.parent
        header |= {"sum": self.checksum, "when": self.when_us, "why": self.why}
        return StoredRecord(header, b"", b"", b"", is_tombstone=True)


def of(tombstone: StoredRecord) -> PackedTombstone:
    header = tombstone.header
    return PackedTombstone(
        id=tombstone.id,
        session=head.session_key(tombstone.session),
        sequence=tombstone.sequence,
        parent=tombstone.parent,
        when_us=header["when"] // 1000 * 1000,
        why=header["why"],
        checksum=header["sum"][:CHECKSUM_SIZE],
    )


# -- positions ---------------------------------------------------------------------------------------------------------


def count_key(tree: bytes) -> RowKey:
    return RowKey(head.GRAVES, ids.tree_tag(tree), tree)


def is_pack(key: RowKey) -> bool:
    return len(key.key) > len(FOREIGN)


def prefixes(id_: bytes) -> tuple[bytes, bytes]:
    """Return the possible prefixes of the key of a pack that holds this id."""
    return ids.tree_tag(id_), FOREIGN


def just_before(prefix: bytes, id_: bytes) -> bytes:
    """Return a key before those of all packs that may hold the id: to scan from."""
    number = int.from_bytes(id_, "big")
    return prefix + (number - 1).to_bytes(16, "big") if number else prefix


def _pack_key(tree: bytes, id_: bytes) -> RowKey:
    return RowKey(head.GRAVES, _prefix_in(tree, id_) + id_, tree)


def _prefix_in(tree: bytes, id_: bytes) -> bytes:
    tag = ids.tree_tag(tree)
    return tag if ids.tree_tag(id_) == tag else FOREIGN


# -- packing -----------------------------------------------------------------------------------------------------------


def tombstone_row(tree: bytes, known: Mapping[RowKey, Row], new: Iterable[PackedTombstone]) -> list[RowWrite]:
    """Return the writes that add these to the packs of the tree; `known` are all its rows."""
    total = count(tree, known)
    writes: dict[RowKey, bytes | None] = {}
    by_prefix: dict[bytes, list[PackedTombstone]] = {}
    for tombstone in new:
        by_prefix.setdefault(_prefix_in(tree, tombstone.id), []).append(tombstone)
    for prefix, tombstones in by_prefix.items():
        packs = sorted(key for key in known if is_pack(key) and key.key.startswith(prefix))
        for pack, added in _group_by_pack(packs, tombstones).items():
            before = unpack(pack, known[pack]) if pack is not None else []
            after = sorted({tombstone.id: tombstone for tombstone in (*before, *added)}.values())
            total += len(after) - len(before)
            if pack is not None:
                writes[pack] = None
            for part in _parts(after, is_last=pack is None or pack == packs[-1]):
                key = _pack_key(tree, part[-1].id)
                writes[key] = pack_row(key, part)
    count_row = count_key(tree)
    writes[count_row] = head.protect(count_row, total.to_bytes(8, "big"))
    return _conditional(known, writes)


def removal(tree: bytes, known: Mapping[RowKey, Row]) -> list[RowWrite]:
    """Return the writes that remove the packed tombstones of a tree.

    If it has none, their absence is still a condition of the commit.
    """
    return _conditional(known, dict.fromkeys([count_key(tree), *known]))


def _conditional(known: Mapping[RowKey, Row], writes: Mapping[RowKey, bytes | None]) -> list[RowWrite]:
    return [RowWrite(key, value, known[key].version if key in known else ABSENT) for key, value in writes.items()]


def _group_by_pack(
    packs: Sequence[RowKey], tombstones: Iterable[PackedTombstone]
) -> dict[RowKey | None, list[PackedTombstone]]:
    """Return the packs that these belong to: the first that does not end before it, or the last.

    None is the key for those without a pack.
    """
    ends = [key.key[len(FOREIGN) :] for key in packs]
    chosen: dict[RowKey | None, list[PackedTombstone]] = {}
    for tombstone in tombstones:
        pack = packs[min(bisect_left(ends, tombstone.id), len(packs) - 1)] if packs else None
        chosen.setdefault(pack, []).append(tombstone)
    return chosen


def count(tree: bytes, known: Mapping[RowKey, Row]) -> int:
    """Return how many packed tombstones the tree has; `known` are all its rows."""
    key = count_key(tree)
    return int.from_bytes(head.content(key, known[key]), "big") if key in known else 0


def _parts(tombstones: Sequence[PackedTombstone], *, is_last: bool) -> Iterator[Sequence[PackedTombstone]]:
    """Yield packs of at most `PER_PACK`.

    New tombstones go to the last pack of a tree, so those before it are full. Any other pack is split
    evenly, since each part may receive new ones.
    """
    parts = -(-len(tombstones) // PER_PACK)
    size = PER_PACK if is_last else -(-len(tombstones) // parts)
    for start in range(0, len(tombstones), size):
        yield tombstones[start : start + size]


# -- one pack ----------------------------------------------------------------------------------------------------------


def pack_row(key: RowKey, tombstones: Sequence[PackedTombstone]) -> bytes:
    """Return the value of a row that holds these, given in the order of their ids."""
    places = {tombstone.id: at for at, tombstone in enumerate(tombstones)}
    sessions: dict[bytes, int] = {}
    reasons: dict[str, int] = {}
    moments, in_session, sequences, parents, whens, whys = (bytearray() for _ in range(6))
    elsewhere: list[bytes] = []
    moment = when = 0
    last: dict[bytes, int] = {}  # sequence number by session
    for at, tombstone in enumerate(tombstones):
        now = int.from_bytes(tombstone.id[:6], "big")
        _put(moments, now - moment)
        _put(in_session, sessions.setdefault(tombstone.session, len(sessions)))
        _put(sequences, _zigzag(tombstone.sequence - last.get(tombstone.session, 0)))
        if tombstone.parent is None:
            _put(parents, 0)
        elif tombstone.parent in places:
            _put(parents, 2 + _zigzag(at - places[tombstone.parent]))
        else:
            _put(parents, 1)
            elsewhere.append(tombstone.parent)
        _put(whens, _zigzag(tombstone.when_us // 1000 - when))
        _put(whys, reasons.setdefault(tombstone.why, len(reasons)))
        moment, when, last[tombstone.session] = now, tombstone.when_us // 1000, tombstone.sequence
    columns = [
        VERSION,
        key.tree,
        list(sessions),
        list(reasons),
        *map(bytes, (moments, in_session, sequences, parents, whens, whys)),
        b"".join(elsewhere),
        *(bytes(tombstone.id[at] for tombstone in tombstones) for at in range(6, 12)),
        b"".join(tombstone.id[12:] for tombstone in tombstones),
        b"".join(tombstone.checksum for tombstone in tombstones),
    ]
    return head.protect(key, frame.compress(ormsgpack.packb(columns)))


def unpack(key: RowKey, row: Row) -> list[PackedTombstone]:
    """Return the tombstones of a row, in the order of their ids."""
    columns = _columns(key, frame.content(head.content(key, row), limit=MAX_CONTENT))
    try:
        tombstones = _read_columns(columns)
    except (ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise _make_damage_error(key) from error
    found = [tombstone.id for tombstone in tombstones]
    if not found or any(a >= b for a, b in pairwise(found)) or key.key[len(FOREIGN) :] != found[-1]:
        raise _make_damage_error(key)
    return tombstones


def _columns(key: RowKey, content: bytes) -> list[Any]:
    try:
        columns = ormsgpack.unpackb(content)
        version, tree = columns[0], columns[1]
    except (ValueError, IndexError, TypeError, KeyError) as error:
        raise _make_damage_error(key) from error
    if isinstance(version, int) and version > VERSION:
        raise NewerVersionError("the tombstones of a tree were packed by a newer holdfast. Upgrade to read them")
    if version != VERSION or tree != key.tree:
        raise _make_damage_error(key)
    return columns[2:]  # type: ignore[no-any-return]  # msgpack has no types


def _read_columns(columns: list[Any]) -> list[PackedTombstone]:
    """Return the tombstones of these columns. Raise errors of any kind if the columns don't fit together."""
    sessions, reasons, *varints = columns[:8]
    elsewhere, *middles, noises, checksums = columns[8:]
    if not all(isinstance(item, bytes) for item in sessions) or not all(isinstance(reason, str) for reason in reasons):
        raise TypeError("a session is bytes, a reason is a text")
    moments, in_session, sequences, parents, whens, whys = map(_numbers, varints)
    count = len(moments)
    _agree(count, in_session, sequences, parents, whens, whys, *middles)
    if len(noises) != 4 * count or len(checksums) != CHECKSUM_SIZE * count or len(middles) != 6:
        raise ValueError("columns of different lengths")
    moment = when = 0
    last: dict[int, int] = {}
    found: list[bytes] = []
    for at, middle in enumerate(zip(*middles, strict=True)):
        moment += moments[at]
        found.append(moment.to_bytes(6, "big") + bytes(middle) + noises[4 * at : 4 * at + 4])
    others = iter(elsewhere[at : at + 16] for at in range(0, len(elsewhere), 16))
    tombstones: list[PackedTombstone] = []
    for at, id_ in enumerate(found):
        session = in_session[at]
        last[session] = last.get(session, 0) + _unzigzag(sequences[at])
        when += _unzigzag(whens[at])
        parent = None
        if parents[at] == 1:
            parent = next(others, b"")
            if len(parent) != 16:
                raise ValueError("a parent is missing")
        elif parents[at]:
            place = at - _unzigzag(parents[at] - 2)
            if place < 0:
                raise ValueError("a parent beyond the first")
            parent = found[place]
        checksum = checksums[CHECKSUM_SIZE * at : CHECKSUM_SIZE * (at + 1)]
        tombstones.append(
            PackedTombstone(id_, sessions[session], last[session], parent, when * 1000, reasons[whys[at]], checksum)
        )
    return tombstones


def _agree(count: int, *columns: Sequence[int]) -> None:
    if any(len(column) != count for column in columns):
        raise ValueError("columns of different lengths")


def _make_damage_error(key: RowKey) -> CorruptError:
    return CorruptError(
        "what is known of expired checkpoints of the tree "
        f"{ids.to_text(key.tree) if len(key.tree) == 16 else key.tree!r} "
        "is damaged. Live checkpoints can still be restored by their ids"
    )


# -- numbers -----------------------------------------------------------------------------------------------------------


def _put(column: bytearray, number: int) -> None:
    """Append a number: seven bits a byte, the lowest first; the last byte is below 128."""
    while number > 127:
        column.append(number & 127 | 128)
        number >>= 7
    column.append(number)


def _numbers(column: bytes) -> list[int]:
    numbers: list[int] = []
    number = shift = 0
    for byte in column:
        number |= (byte & 127) << shift
        if byte > 127:
            shift += 7
            if shift >= 7 * _MAX_VARINT:
                raise ValueError("a number that has no end")
        else:
            numbers.append(number)
            number = shift = 0
    if shift:
        raise ValueError("a number without its end")
    return numbers


def _zigzag(number: int) -> int:
    return number * 2 if number >= 0 else -number * 2 - 1


def _unzigzag(number: int) -> int:
    return -(number + 1) // 2 if number & 1 else number // 2
