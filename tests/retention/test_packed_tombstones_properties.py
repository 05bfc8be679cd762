"""Graves, for any tombstones: what is packed is unpacked, packs stay in order however they are
filled, rubbish is refused."""

from __future__ import annotations

import contextlib

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.port import Row, RowKey
from holdfast.errors import CorruptError, NewerVersionError
from holdfast.format import frame
from holdfast.format.rows import head, packed_tombstones
from holdfast.format.rows.packed_tombstones import PackedTombstone
from holdfast.model import ids

TREE = ids.make(1_800_000_000_000, 0, bytes(range(8)))
TAG = ids.tree_tag(TREE)

own_ids = st.builds(
    ids.make, st.integers(0, 2**48 - 1), st.integers(0, 4095), st.binary(min_size=8, max_size=8), st.just(TAG)
)
any_ids = own_ids | own_ids | st.binary(min_size=16, max_size=16)


@st.composite
def buried(draw: st.DrawFn, max_size: int = 40) -> list[PackedTombstone]:
    found = draw(st.lists(any_ids, min_size=1, max_size=max_size, unique=True))
    return [
        PackedTombstone(
            id=id_,
            session=draw(st.sampled_from([b"", b"s", "\ud800".encode("utf-8", "surrogatepass"), b"long" * 100])),
            sequence=draw(st.integers(1, 2**62)),
            parent=draw(st.none() | st.sampled_from(found) | any_ids),
            when_us=draw(st.integers(-(2**40), 2**52)) * 1000,
            why=draw(st.sampled_from(["expired by hand", "time to live", "", "ünï"])),
            checksum=draw(st.binary(min_size=12, max_size=12)),
        )
        for id_ in found
    ]


def carried_out(known: dict[RowKey, Row], writes) -> dict[RowKey, Row]:
    after = dict(known)
    for write in writes:
        assert write.expect == (known[write.key].version if write.key in known else 0)
        if write.value is None:
            del after[write.key]
        else:
            after[write.key] = Row(write.value, write.expect + 1)
    return after


def found_by_key(known: dict[RowKey, Row], id_: bytes) -> PackedTombstone | None:
    """As a reader does it: the first pack that does not end before the id, of those that begin as it may."""
    for prefix in packed_tombstones.prefixes(id_):
        after = packed_tombstones.just_before(prefix, id_)
        keys = sorted(key for key in known if key.key.startswith(prefix) and key.key > after)
        for tombstone in packed_tombstones.unpack(keys[0], known[keys[0]]) if keys else []:
            if tombstone.id == id_:
                return tombstone
    return None


@given(buried())
def test_what_is_packed_is_unpacked(some: list[PackedTombstone]):
    in_order = sorted(some)
    key = RowKey(head.GRAVES, TAG + in_order[-1].id, TREE)
    assert packed_tombstones.unpack(key, Row(packed_tombstones.pack_row(key, in_order), 1)) == in_order


@given(st.lists(buried(max_size=12), max_size=8), any_ids, st.integers(2, 5))
def test_each_is_found_by_its_id_however_they_were_added(
    batches: list[list[PackedTombstone]], other: bytes, per_pack: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_tombstones, "PER_PACK", per_pack)
        known: dict[RowKey, Row] = {}
        model: dict[bytes, PackedTombstone] = {}
        for batch in batches:
            known = carried_out(known, packed_tombstones.tombstone_row(TREE, known, batch))
            model |= {tombstone.id: tombstone for tombstone in batch}
        assert {id_: found_by_key(known, id_) for id_ in model} == model
        assert other in model or found_by_key(known, other) is None
        packs = [packed_tombstones.unpack(key, row) for key, row in known.items() if packed_tombstones.is_pack(key)]
        assert sorted(tombstone for pack in packs for tombstone in pack) == sorted(model.values())
        assert all(len(pack) <= per_pack for pack in packs)
        assert packed_tombstones.count(TREE, known) == len(model)
        assert carried_out(known, packed_tombstones.removal(TREE, known) if known else []) == {}


def test_that_a_tree_has_no_graves_is_a_condition_of_removing_it():
    [write] = packed_tombstones.removal(TREE, {})
    assert (write.key, write.value, write.expect) == (packed_tombstones.count_key(TREE), None, 0)


def test_a_thousand_take_few_bytes():
    noise = [bytes(((n * 7919 + i * 104729) >> i) & 255 for i in range(8)) for n in range(1024)]
    new = [
        PackedTombstone(
            ids.make(1_800_000_000_000 + 5 * n, 0, noise[n], TAG), b"s", n + 1, None, 0, "why", noise[n] + noise[n][:4]
        )
        for n in range(1024)
    ]
    new = [tombstone._replace(parent=new[n - 1].id if n else None) for n, tombstone in enumerate(new)]
    known = carried_out({}, packed_tombstones.tombstone_row(TREE, {}, new))
    assert len(known) == 3
    assert sum(len(row.value) for row in known.values()) < 18 * 1024


@given(st.binary(max_size=300) | st.binary(max_size=100).map(lambda data: b"\x01" + data))
def test_rubbish_is_refused(content: bytes):
    key = RowKey(head.GRAVES, TAG + bytes(16), TREE)
    for framed in (content, frame.frame_raw(content), frame.compress(content)):
        with pytest.raises((CorruptError, NewerVersionError)):
            packed_tombstones.unpack(key, Row(head.protect(key, framed), 1))


@given(buried(max_size=6), st.data())
def test_a_changed_pack_is_refused_or_well_formed(some: list[PackedTombstone], data: st.DataObject):
    """Not by its CRC, which is right here: by what it says."""
    in_order = sorted(some)
    key = RowKey(head.GRAVES, TAG + in_order[-1].id, TREE)
    changed = bytearray(frame.content(packed_tombstones.pack_row(key, in_order)[:-4]))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptError, NewerVersionError):
        for tombstone in packed_tombstones.unpack(key, Row(head.protect(key, frame.frame_raw(bytes(changed))), 1)):
            assert len(tombstone.id) == 16
            assert tombstone.parent is None or len(tombstone.parent) == 16
            assert isinstance(tombstone.session, bytes)
            assert isinstance(tombstone.why, str)


def test_a_reason_that_is_no_text_is_damage():
    """A right CRC does not make the content right: here the reason of the only tombstone is a number."""
    only = PackedTombstone(bytes(16), b"s", 1, None, 0, "", bytes(12))
    key = RowKey(head.GRAVES, TAG + only.id, TREE)
    content = frame.content(packed_tombstones.pack_row(key, [only])[:-4])
    changed = ormsgpack.unpackb(content)
    changed[3] = [0]
    row = Row(head.protect(key, frame.frame_raw(ormsgpack.packb(changed))), 1)
    with pytest.raises(CorruptError):
        packed_tombstones.unpack(key, row)


def test_any_byte_of_a_pack_may_be_any_other():
    in_order = [PackedTombstone(bytes((first,)) + bytes(15), b"s", 1, None, 0, "why", bytes(12)) for first in (4, 116)]
    key = RowKey(head.GRAVES, TAG + in_order[-1].id, TREE)
    content = frame.content(packed_tombstones.pack_row(key, in_order)[:-4])
    for place in range(len(content)):
        for value in range(256):
            changed = content[:place] + bytes((value,)) + content[place + 1 :]
            with contextlib.suppress(CorruptError, NewerVersionError):
                packed_tombstones.unpack(key, Row(head.protect(key, frame.frame_raw(changed)), 1))


def test_a_pack_of_another_tree_or_end_is_refused():
    tombstone = PackedTombstone(TREE, b"s", 1, None, 0, "why", bytes(12))
    key = RowKey(head.GRAVES, TAG + TREE, TREE)
    value = packed_tombstones.pack_row(key, [tombstone])
    for other in (key._replace(tree=bytes(16)), key._replace(key=TAG + bytes(16)), key._replace(key=TAG)):
        with pytest.raises(CorruptError):
            packed_tombstones.unpack(other, Row(head.protect(other, value[:-4]), 1))


def test_a_pack_that_claims_to_be_huge_is_not_inflated():
    key = RowKey(head.GRAVES, TAG + TREE, TREE)
    bomb = frame.compress(bytes(packed_tombstones.MAX_CONTENT + 1))
    with pytest.raises(CorruptError, match="claims"):
        packed_tombstones.unpack(key, Row(head.protect(key, bomb), 1))
