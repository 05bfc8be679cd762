"""Graves: reads of packed tombstones, and the packing of tombstones that are records.

Readers look for a record first and for a grave second. gc moves a tombstone from the records to the
graves in one commit, and nothing ever moves back: a reader that finds it in neither has not missed
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.port import Commit, CommitConflict, Record, Row, RowKey
from holdfast.format.rows import head
from holdfast.format.rows import packed_tombstones as pure
from holdfast.format.rows.packed_tombstones import PackedTombstone
from holdfast.format.state.record import StoredRecord
from holdfast.operations.context import StoreContext

MOVED_AT_ONCE = 1000  # in one commit
PAGE = 20


class TombstoneReader:
    """A search for packed tombstones by id. It keeps the last pack: the next search is often the parent."""

    def __init__(self, ctx: StoreContext) -> None:
        self._ctx = ctx
        self._pack: dict[bytes, PackedTombstone] = {}
        self._tree = b""

    def get_cached(self, id_: bytes) -> StoredRecord | None:
        tombstone = self._pack.get(id_)
        return tombstone.make_record(self._tree) if tombstone else None

    async def find(self, id_: bytes, tree: bytes | None = None) -> StoredRecord | None:
        """Return the tombstone of that checkpoint; a caller that knows its tree passes it."""
        for prefix in pure.prefixes(id_):
            # Mostly the first pack is the one. Only if ids of several trees begin alike, all of
            # them are read at once, so that none is missed that is rearranged meanwhile.
            for limit in (1, None):
                found = await self._ctx.backend.scan(
                    head.GRAVES, tree=tree, prefix=prefix, after=pure.just_before(prefix, id_), limit=limit
                )
                if self._add_pack(found, id_):
                    return self.get_cached(id_)
                if not found or tree is not None:
                    break
        return None

    def _add_pack(self, found: Sequence[tuple[RowKey, Row]], id_: bytes) -> bool:
        seen: set[bytes] = set()
        for key, row in found:
            if key.tree not in seen:  # of each tree, the first one that does not end before the id
                seen.add(key.tree)
                tombstones = {tombstone.id: tombstone for tombstone in pure.unpack(key, row)}
                if id_ in tombstones:
                    self._pack, self._tree = tombstones, key.tree
                    return True
        return False


async def load_tombstones(ctx: StoreContext, tree: bytes) -> list[PackedTombstone]:
    found = await ctx.backend.scan(head.GRAVES, tree=tree)
    return [tombstone for key, row in found if pure.is_pack(key) for tombstone in pure.unpack(key, row)]


async def numbers_of(ctx: StoreContext, tree: bytes, session: bytes) -> set[int]:
    """Return the sequence numbers of a session's graves."""
    return {tombstone.sequence for tombstone in await load_tombstones(ctx, tree) if tombstone.session == session}


async def find_ids(ctx: StoreContext, ending: str, limit: int) -> list[bytes]:
    """Return the ids in graves whose hex digits end so. Reads all graves."""
    found: list[bytes] = []
    after: bytes | None = None
    while len(found) < limit and (page := await ctx.backend.scan(head.GRAVES, after=after, limit=PAGE)):
        packs = (pure.unpack(key, row) for key, row in page if pure.is_pack(key))
        found += [tombstone.id for pack in packs for tombstone in pack if tombstone.id.hex().endswith(ending)]
        after = page[-1][0].key
    return found[:limit]


async def pack_expired(
    ctx: StoreContext, tree: bytes, tombstones: Sequence[tuple[Record, StoredRecord]], *, dry_run: bool
) -> tuple[int, int]:
    """Pack final tombstones of a tree; return how many, and how many bytes fewer they take."""
    moved = freed = 0
    for start in range(0, len(tombstones), MOVED_AT_ONCE):
        batch = tombstones[start : start + MOVED_AT_ONCE]
        known = dict(await ctx.backend.scan(head.GRAVES, tree=tree))
        writes = pure.tombstone_row(tree, known, [pure.of(stored) for _, stored in batch])
        records = [(found.id, found.data) for found, _ in batch]
        if not dry_run:
            try:
                # They are a condition, too: a tree that was collected meanwhile must not get graves
                # again.
                await ctx.backend.commit(Commit(tree=tree, rows=writes, require=records, delete_records=records))
            except CommitConflict:
                break  # another gc is running: next time
        moved += len(batch)
        freed += sum(len(data) for _, data in records)
        freed += sum(len(known[write.key].value) for write in writes if write.key in known)
        freed -= sum(len(write.value) for write in writes if write.value is not None)
    return moved, freed
