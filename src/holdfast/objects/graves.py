"""Graves: many tombstones in few rows. Pure.

A tombstone that can no longer be undone need not be a record. Collection packs those of a tree into rows of the space
`graves`, up to `PER_PACK` in each, as columns: what is alike in all of them takes no space. The random part of an id and
the beginning of a checksum are all that is left of a grave when it is compressed: about 17 bytes.

A row's key is four bytes and the greatest id in it. The packs of a tree that begin with the same four bytes are in
order and don't overlap: the first one whose key is not less than an id is the only one that may hold it. The four bytes
are the tag of the tree (`model/ids.py`), which is in the id too, so that an id is found without knowing its tree; for
ids that somebody else made, and that carry no tag of their tree, they are zeros.

A tree with graves has one more row, whose key is the tag alone: how many there are. Every burial rewrites it, so
that two collections at once can't rearrange the packs of one tree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import ormsgpack

from holdfast.backends.port import ABSENT, Row, RowKey, RowWrite
from holdfast.errors import CorruptError, NewerVersionError
from holdfast.model import ids
from holdfast.objects import frame, rows
from holdfast.objects.record import Stored

VERSION = 1
PER_PACK = 512
ABOUT_BYTES = 20  # that one takes, for those who estimate
CHECKSUM_SIZE = 12  # of the 32 bytes, which nothing compresses: enough to tell which checkpoint it was
FOREIGN = bytes(4)  # no tag: these have the variant bits of a UUID
MAX_CONTENT = 1 << 26
_MAX_VARINT = 10


class Grave(NamedTuple):
    """What is left of an expired checkpoint."""

    id: bytes
    session: bytes
    sequence: int
    parent: bytes | None
    when_us: int  # to the millisecond
    why: str
    checksum: bytes  # the first bytes of it

    def stored(self, tree: bytes) -> Stored:
        """As a tombstone, for those who look for a record. It has no name, no step and no time of its own any more."""
        header: dict[str, Any] = {"id": self.id, "seq": self.sequence, "session": rows.session_name(self.session)}
        if self.id != tree:
            header["tree"] = tree
        if self.parent is not None:
            header["parent"] = self.parent
        header |= {"sum": self.checksum, "when": self.when_us, "why": self.why}
        return Stored(header, b"", b"", b"", is_tombstone=True)


def of(tombstone: Stored) -> Grave:
    header = tombstone.header
    return Grave(
        id=tombstone.id,
        session=rows.session_key(tombstone.session),
        sequence=tombstone.sequence,
        parent=tombstone.parent,
        when_us=header["when"] // 1000 * 1000,
        why=header["why"],
        checksum=header["sum"][:CHECKSUM_SIZE],
    )


# -- where they are ----------------------------------------------------------------------------------------------------


def count_key(tree: bytes) -> RowKey:
    return RowKey(rows.GRAVES, ids.tree_tag(tree), tree)


def is_pack(key: RowKey) -> bool:
    return len(key.key) > len(FOREIGN)


def prefixes(id_: bytes) -> tuple[bytes, bytes]:
    """What the key of a pack that holds this id may begin with."""
    return ids.tree_tag(id_), FOREIGN


def just_before(prefix: bytes, id_: bytes) -> bytes:
    """A key that those of all packs follow which may hold the id: to scan from."""
    number = int.from_bytes(id_, "big")
    return prefix + (number - 1).to_bytes(16, "big") if number else prefix


def _pack_key(tree: bytes, id_: bytes) -> RowKey:
    return RowKey(rows.GRAVES, _prefix_in(tree, id_) + id_, tree)


def _prefix_in(tree: bytes, id_: bytes) -> bytes:
    tag = ids.tree_tag(tree)
    return tag if ids.tree_tag(id_) == tag else FOREIGN


# -- burying -----------------------------------------------------------------------------------------------------------


def burial(tree: bytes, known: Mapping[RowKey, Row], new: Iterable[Grave]) -> list[RowWrite]:
    """What to write so that these are in the packs of the tree, of which `known` are all rows there are."""
    total = count(tree, known)
    writes: dict[RowKey, bytes | None] = {}
    by_prefix: dict[bytes, list[Grave]] = {}
    for grave in new:
        by_prefix.setdefault(_prefix_in(tree, grave.id), []).append(grave)
    for prefix, graves in by_prefix.items():
        packs = sorted(key for key in known if is_pack(key) and key.key.startswith(prefix))
        for pack, added in _by_pack(packs, graves).items():
            before = unpack(pack, known[pack]) if pack is not None else []
            after = sorted({grave.id: grave for grave in (*before, *added)}.values())
            total += len(after) - len(before)
            if pack is not None:
                writes[pack] = None
            for part in _parts(after, is_last=pack is None or pack == packs[-1]):
                key = _pack_key(tree, part[-1].id)
                writes[key] = packed(key, part)
    count_row = count_key(tree)
    writes[count_row] = rows.protect(count_row, total.to_bytes(8, "big"))
    return _conditional(known, writes)


def removal(tree: bytes, known: Mapping[RowKey, Row]) -> list[RowWrite]:
    """What to write so that the tree has no graves; if it has none, that this is so is a condition all the same."""
    return _conditional(known, dict.fromkeys([count_key(tree), *known]))


def _conditional(known: Mapping[RowKey, Row], writes: Mapping[RowKey, bytes | None]) -> list[RowWrite]:
    return [RowWrite(key, value, known[key].version if key in known else ABSENT) for key, value in writes.items()]


def _by_pack(packs: Sequence[RowKey], graves: Iterable[Grave]) -> dict[RowKey | None, list[Grave]]:
    """The packs that these go to: the first one that does not end before it, or the last one; None if there is none."""
    ends = [key.key[len(FOREIGN) :] for key in packs]
    chosen: dict[RowKey | None, list[Grave]] = {}
    for grave in graves:
        pack = packs[min(bisect_left(ends, grave.id), len(packs) - 1)] if packs else None
        chosen.setdefault(pack, []).append(grave)
    return chosen


def count(tree: bytes, known: Mapping[RowKey, Row]) -> int:
    """How many graves the tree has, of which `known` are all rows there are."""
    key = count_key(tree)
    return int.from_bytes(rows.content(key, known[key]), "big") if key in known else 0


def _parts(graves: Sequence[Grave], *, is_last: bool) -> Iterator[Sequence[Grave]]:
    """Packs of at most `PER_PACK`. The last one of a tree is where new ones come: those before it are full. Any
    other is split evenly, since new ones may come to each part."""
    parts = -(-len(graves) // PER_PACK)
    size = PER_PACK if is_last else -(-len(graves) // parts)
    for start in range(0, len(graves), size):
        yield graves[start : start + size]


# -- one pack ----------------------------------------------------------------------------------------------------------


def packed(key: RowKey, graves: Sequence[Grave]) -> bytes:
    """The value of a row that holds these, which are in the order of their ids."""
    places = {grave.id: at for at, grave in enumerate(graves)}
    sessions: dict[bytes, int] = {}
    reasons: dict[str, int] = {}
    moments, in_session, sequences, parents, whens, whys = (bytearray() for _ in range(6))
    elsewhere: list[bytes] = []
    moment = when = 0
    last: dict[bytes, int] = {}  # sequence number by session
    for at, grave in enumerate(graves):
        now = int.from_bytes(grave.id[:6], "big")
        _put(moments, now - moment)
        _put(in_session, sessions.setdefault(grave.session, len(sessions)))
        _put(sequences, _zigzag(grave.sequence - last.get(grave.session, 0)))
        if grave.parent is None:
            _put(parents, 0)
        elif grave.parent in places:
            _put(parents, 2 + _zigzag(at - places[grave.parent]))
        else:
            _put(parents, 1)
            elsewhere.append(grave.parent)
        _put(whens, _zigzag(grave.when_us // 1000 - when))
        _put(whys, reasons.setdefault(grave.why, len(reasons)))
        moment, when, last[grave.session] = now, grave.when_us // 1000, grave.sequence
    columns = [
        VERSION,
        key.tree,
        list(sessions),
        list(reasons),
        *map(bytes, (moments, in_session, sequences, parents, whens, whys)),
        b"".join(elsewhere),
        *(bytes(grave.id[at] for grave in graves) for at in range(6, 12)),
        b"".join(grave.id[12:] for grave in graves),
        b"".join(grave.checksum for grave in graves),
    ]
    return rows.protect(key, frame.compressed(ormsgpack.packb(columns)))


def unpack(key: RowKey, row: Row) -> list[Grave]:
    """The graves of a row, in the order of their ids."""
    columns = _columns(key, frame.content(rows.content(key, row), limit=MAX_CONTENT))
    try:
        graves = _graves(columns)
    except (ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise _damaged(key) from error
    found = [grave.id for grave in graves]
    if not found or any(a >= b for a, b in pairwise(found)) or key.key[len(FOREIGN) :] != found[-1]:
        raise _damaged(key)
    return graves


def _columns(key: RowKey, content: bytes) -> list[Any]:
    try:
        columns = ormsgpack.unpackb(content)
        version, tree = columns[0], columns[1]
    except (ValueError, IndexError, TypeError, KeyError) as error:
        raise _damaged(key) from error
    if isinstance(version, int) and version > VERSION:
        raise NewerVersionError("the graves of a tree were packed by a newer holdfast. Upgrade to read them")
    if version != VERSION or tree != key.tree:
        raise _damaged(key)
    return columns[2:]  # type: ignore[no-any-return]  # msgpack has no types


def _graves(columns: list[Any]) -> list[Grave]:
    """Raises all kinds of errors if the columns don't fit together."""
    sessions, reasons, *varints = columns[:8]
    elsewhere, *middles, noises, checksums = columns[8:]
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
    graves: list[Grave] = []
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
        graves.append(Grave(id_, sessions[session], last[session], parent, when * 1000, reasons[whys[at]], checksum))
    return graves


def _agree(count: int, *columns: Sequence[int]) -> None:
    if any(len(column) != count for column in columns):
        raise ValueError("columns of different lengths")


def _damaged(key: RowKey) -> CorruptError:
    return CorruptError(
        f"what is known of expired checkpoints of the tree {ids.to_text(key.tree) if len(key.tree) == 16 else key.tree!r} "
        "is damaged. Live checkpoints can still be restored by their ids"
    )


# -- numbers -----------------------------------------------------------------------------------------------------------


def _put(column: bytearray, number: int) -> None:
    """Seven bits a byte, the lowest first; the last byte is below 128."""
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
