"""The comparison of a bundle's tree with the store: new, existing and contradicting parts.

A checkpoint that is in the store with the same checksum is the same one, wherever its parts are
stored. That it has expired on one side only is no contradiction: it stays as it is in the store. A
session may be in the store, too, at the same point, further ahead, or less far; it must not have
diverged.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from holdfast.backends.port import ABSENT, Row, RowKey, RowWrite
from holdfast.errors import ConflictError
from holdfast.format.bundle.sections import HeadEntry
from holdfast.format.rows import approval, ledger, portable
from holdfast.format.rows import head as rows
from holdfast.format.rows.packed_tombstones import PackedTombstone
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model import tree as trees
from holdfast.operations import approval as asking
from holdfast.operations import lease, lookup
from holdfast.operations.adapter import portable_rows
from holdfast.operations.bundle.reader import BundleReader, TreeIndex, tree_records
from holdfast.operations.context import StoreContext
from holdfast.operations.tombstones import TombstoneReader

PAGE = 500


@dataclass(slots=True)
class Difference:
    """The parts of a bundle's tree that are not in the store."""

    new: list[tuple[bytes, StoredRecord]] = field(default_factory=list)
    new_tombstones: list[PackedTombstone] = field(default_factory=list)
    known: list[tuple[StoredRecord, StoredRecord]] = field(default_factory=list)  # live in both: theirs, ours
    existing: int = 0
    head_writes: list[RowWrite] = field(default_factory=list)
    row_writes: list[RowWrite] = field(default_factory=list)
    moved: list[bytes] = field(default_factory=list)  # sessions

    def list_live(self) -> list[tuple[bytes, StoredRecord]]:
        return [(data, stored) for data, stored in self.new if not stored.is_tombstone]


async def compare(ctx: StoreContext, source: BundleReader, index: TreeIndex) -> Difference:
    """Return the missing parts. Raise `ConflictError` if the store's parts differ."""
    records = await tree_records(source, ctx.codec, portable_rows(ctx), index)
    buried = [PackedTombstone(*entry) for entry in index.tombstones]
    everything = [*records, *((b"", tombstone.make_record(index.entry.tree)) for tombstone in buried)]
    found = Difference()
    ours: dict[bytes, StoredRecord] = {}
    for start in range(0, len(everything), PAGE):
        page = everything[start : start + PAGE]
        ours |= await _load_stored(ctx, index.entry.tree, [stored.id for _, stored in page])
        for data, theirs in page:
            mine = ours.get(theirs.id)
            if mine is None and data:
                found.new.append((data, theirs))
            if mine is None:
                continue
            if not _are_same(mine, theirs):
                raise ConflictError(
                    f"checkpoint {ids.to_text(theirs.id)} of session {theirs.session!r:.60} is there already, with "
                    "other content: nothing of its tree was imported"
                )
            found.existing += 1
            if not (mine.is_tombstone or theirs.is_tombstone):
                found.known.append((theirs, mine))
    found.new_tombstones = [tombstone for tombstone in buried if tombstone.id not in ours]
    new_numbers: dict[bytes, int] = {}
    for session, number in (
        *((rows.session_key(stored.session), stored.sequence) for _, stored in found.new),
        *((tombstone.session, tombstone.sequence) for tombstone in found.new_tombstones),
    ):
        new_numbers[session] = min(number, new_numbers.get(session, number))
    of_tree = _Family([stored for _, stored in everything], ours)
    for head in index.entry.heads:
        writes = await _head_writes(ctx, index.entry.tree, head, new_numbers.get(head.session), of_tree)
        if writes:
            found.head_writes += writes
            found.moved.append(head.session)
    gone_on = {theirs.id for theirs, _ in found.known if rows.session_key(theirs.session) in found.moved}
    found.row_writes = [
        *await _row_writes(ctx, index, {stored.id for _, stored in found.new}),
        *await _end_handoffs(ctx, index, gone_on),
        *await _ledger_writes(ctx, index),
        *await _approval_writes(ctx, index),
    ]
    return found


async def _load_stored(ctx: StoreContext, tree: bytes, wanted: Sequence[bytes]) -> dict[bytes, StoredRecord]:
    """Return the stored ones of these, records first: the others may be packed tombstones."""
    existing: dict[bytes, StoredRecord] = {}
    for found in await ctx.backend.records(wanted):
        if found is not None:
            existing[found.id] = record.unpack(ctx.codec, found.data, expected_id=found.id)
    tombstone_reader = TombstoneReader(ctx)
    for id_ in [id_ for id_ in wanted if id_ not in existing]:
        tombstone = tombstone_reader.get_cached(id_) or await tombstone_reader.find(id_, tree)
        if tombstone is not None:
            existing[id_] = tombstone
    return existing


class _Family:
    """The ancestry in a tree, and which checkpoints have expired in the bundle or the store."""

    def __init__(self, theirs: Sequence[StoredRecord], ours: dict[bytes, StoredRecord]) -> None:
        self._parents = {stored.id: stored.parent for stored in theirs}
        self._expired = {stored.id for stored in (*theirs, *ours.values()) if stored.is_tombstone}

    def find_nearest_live(self, id_: bytes | None) -> bytes | None:
        """Return the checkpoint itself, or the nearest ancestor that has not expired."""
        if id_ is None:
            return None
        return next(
            (ancestor for ancestor in trees.ancestors(self._parents, id_) if ancestor not in self._expired), None
        )

    def leads_to(self, ancestor: bytes | None, id_: bytes | None) -> bool:
        if ancestor is None:
            return True
        return id_ is not None and ancestor in trees.ancestors(self._parents, id_)


async def _head_writes(
    ctx: StoreContext, tree: bytes, theirs: HeadEntry, first_new: int | None, family: _Family
) -> list[RowWrite]:
    """Return the writes that move the session to its head in the bundle; none if it is there or ahead."""
    name = rows.session_name(theirs.session)
    head_key, session_key = rows.head_key(theirs.session, tree), RowKey(rows.SESSION, theirs.session)
    own_tree = await lookup.find_tree(ctx, theirs.session)
    if own_tree is None:
        value = rows.Head(theirs.checkpoint, theirs.sequence).pack(head_key)
        return [
            RowWrite(head_key, value, ABSENT),
            RowWrite(session_key, rows.protect(session_key, tree), ABSENT),
        ]
    found = await lookup.find_head(ctx, theirs.session, tree) if own_tree == tree else None
    if found is None:
        raise ConflictError(
            f"session {name!r:.60} is there already, in another tree ({ids.to_text(own_tree)}): nothing of the tree "
            f"{ids.to_text(tree)} was imported"
        )
    ours, row = found
    if first_new is not None and first_new <= ours.sequence:
        raise ConflictError(
            f"session {name!r:.60} has gone another way here since its number {first_new - 1}: nothing of its tree was "
            "imported"
        )
    standing = family.find_nearest_live(ours.checkpoint)
    if theirs.sequence <= ours.sequence:
        if theirs.sequence == ours.sequence and standing != family.find_nearest_live(theirs.checkpoint):
            raise ConflictError(
                f"session {name!r:.60} stands elsewhere here ({_id(ours.checkpoint)}) than in the file "
                f"({_id(theirs.checkpoint)}): nothing of its tree was imported. Every checkpoint of it is there: "
                "`rollback` moves the session"
            )
        return []
    if not family.leads_to(standing, theirs.checkpoint):
        raise ConflictError(
            f"session {name!r:.60} stands here at {_id(ours.checkpoint)}, which is no ancestor of where it stands in "
            f"the file ({_id(theirs.checkpoint)}): nothing of its tree was imported"
        )
    lease.refuse(ctx, name, ours, None)
    head = ours._replace(checkpoint=theirs.checkpoint, sequence=theirs.sequence)
    return [RowWrite(head_key, head.pack(head_key), row.version, row.value)]


async def _row_writes(ctx: StoreContext, index: TreeIndex, new: Collection[bytes]) -> list[RowWrite]:
    """Return the rows about new checkpoints. Rows about others are the store's own."""
    known = portable_rows(ctx)
    entries = [entry for entry in index.rows if known.checkpoint_of(entry) in new]
    keys = [portable.key_of(entry, index.entry.tree) for entry in entries]
    writes = []
    for entry, key, row in zip(entries, keys, await ctx.backend.rows(keys), strict=True):
        if row is None:
            writes.append(RowWrite(key, rows.protect(key, entry.content), ABSENT))
        elif rows.content(key, row) != entry.content:
            name = entry.key.decode("utf-8", "backslashreplace")
            raise ConflictError(
                f"the {entry.space} {name!r:.60} is there already, and stands for something else: nothing of the tree "
                f"{ids.to_text(index.entry.tree)} was imported. Remove it here, or there, and try again"
            )
    return writes


async def _ledger_writes(ctx: StoreContext, index: TreeIndex) -> list[RowWrite]:
    """Return the entries of the bundle's ledger that the store's ledger does not have.

    Of an effect that is in both the longer history counts. If neither history begins the other,
    they contradict each other.
    """
    entries = [entry for entry in index.rows if entry.space == ledger.LEDGER]
    keys = [portable.key_of(entry, index.entry.tree) for entry in entries]
    writes = []
    for entry, key, row in zip(entries, keys, await ctx.backend.rows(keys) if keys else (), strict=True):
        value = rows.protect(key, entry.content)
        if row is None:
            writes.append(RowWrite(key, value, ABSENT))
        elif row.value != value:
            theirs, ours = ledger.unpack(key, Row(value, 1)).history, ledger.unpack(key, row).history
            if theirs[: len(ours)] == ours:
                writes.append(RowWrite(key, value, row.version, row.value))
            elif ours[: len(theirs)] != theirs:
                raise ConflictError(
                    f"effect {ids.to_text(key.key)} has gone another way here than in the file: nothing of the tree "
                    f"{ids.to_text(index.entry.tree)} was imported. `holdfast effects` says what is known here"
                )
    return writes


async def _approval_writes(ctx: StoreContext, index: TreeIndex) -> list[RowWrite]:
    """Return the approvals that are unknown here, or are pending here and ended in the bundle."""
    tree, codec, now_us = index.entry.tree, ctx.codec, ctx.now_us()
    writes = []
    for entry in index.rows:
        if entry.space == approval.APPROVAL:
            key = portable.key_of(entry, tree)
            theirs = approval.unpack(codec, key, Row(rows.protect(key, entry.content), 1), now_us)
            ours = await asking.read(ctx, tree, theirs.id)
            writes += approval.merge_imported(codec, theirs, ours, now_us)
    return writes


async def _end_handoffs(ctx: StoreContext, index: TreeIndex, gone_on: Collection[bytes]) -> list[RowWrite]:
    """Return the writes for handoffs of advancing sessions that wait here and ended in the bundle."""
    known = portable_rows(ctx)
    entries = [
        (entry, before)
        for entry in index.rows
        if known.checkpoint_of(entry) in gone_on and (before := portable.takes_place_of(entry)) is not None
    ]
    waiting = [RowKey(entry.space, before, index.entry.tree) for entry, before in entries]
    writes = []
    for (entry, _), key, row in zip(entries, waiting, await ctx.backend.rows(waiting), strict=True):
        if row is not None:
            done = portable.key_of(entry, index.entry.tree)
            writes += [RowWrite(key, None, row.version), RowWrite(done, rows.protect(done, entry.content))]
    return writes


def _are_same(mine: StoredRecord, theirs: StoredRecord) -> bool:
    """Return whether two records are the same; of a tombstone, only the start of the checksum is known."""
    size = min(len(_checksum(mine)), len(_checksum(theirs)))
    return (_checksum(mine)[:size], mine.session, mine.sequence) == (
        _checksum(theirs)[:size],
        theirs.session,
        theirs.sequence,
    )


def _checksum(stored: StoredRecord) -> bytes:
    checksum: bytes = stored.header["sum"] if stored.is_tombstone else stored.checksum
    return checksum


def _id(id_: bytes | None) -> str:
    return ids.to_text(id_) if id_ else "nothing"
