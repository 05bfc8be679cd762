"""Graves: finding what is left of expired checkpoints, and burying them more densely than as records.

Readers look for a record first and for a grave second. Collection moves a tombstone from the one place to the other in
one commit, and nothing ever moves back: who finds it in neither has not overlooked it.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.port import Commit, CommitConflict, Record, Row, RowKey
from holdfast.objects import graves as pure
from holdfast.objects import rows
from holdfast.objects.graves import Grave
from holdfast.objects.record import Stored
from holdfast.operations.services import Services

MOVED_AT_ONCE = 1000  # in one commit
PAGE = 20


class Graveyard:
    """Finds graves by their ids, and keeps the pack it looked into last at hand: whoever asks for one asks for its
    parent next."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._at_hand: dict[bytes, Grave] = {}
        self._tree = b""

    def at_hand(self, id_: bytes) -> Stored | None:
        grave = self._at_hand.get(id_)
        return grave.stored(self._tree) if grave else None

    async def find(self, id_: bytes, tree: bytes | None = None) -> Stored | None:
        """What is left of that checkpoint; who knows its tree says so."""
        for prefix in pure.prefixes(id_):
            # Mostly the first pack is the one. Only if ids of several trees begin alike, all of them are looked at,
            # in one go, so that none is missed that is rearranged meanwhile.
            for limit in (1, None):
                found = await self._services.backend.scan(
                    rows.GRAVES, tree=tree, prefix=prefix, after=pure.just_before(prefix, id_), limit=limit
                )
                if self._look_into(found, id_):
                    return self.at_hand(id_)
                if not found or tree is not None:
                    break
        return None

    def _look_into(self, found: Sequence[tuple[RowKey, Row]], id_: bytes) -> bool:
        seen: set[bytes] = set()
        for key, row in found:
            if key.tree not in seen:  # of each tree, the first one that does not end before the id
                seen.add(key.tree)
                graves = {grave.id: grave for grave in pure.unpack(key, row)}
                if id_ in graves:
                    self._at_hand, self._tree = graves, key.tree
                    return True
        return False


async def of_tree(services: Services, tree: bytes) -> list[Grave]:
    found = await services.backend.scan(rows.GRAVES, tree=tree)
    return [grave for key, row in found if pure.is_pack(key) for grave in pure.unpack(key, row)]


async def numbers_of(services: Services, tree: bytes, session: bytes) -> set[int]:
    """The sequence numbers of a session's graves."""
    return {grave.sequence for grave in await of_tree(services, tree) if grave.session == session}


async def find_ids(services: Services, ending: str, limit: int) -> list[bytes]:
    """Ids in graves whose hex digits end so. Looks at all of them."""
    found: list[bytes] = []
    after: bytes | None = None
    while len(found) < limit and (page := await services.backend.scan(rows.GRAVES, after=after, limit=PAGE)):
        packs = (pure.unpack(key, row) for key, row in page if pure.is_pack(key))
        found += [grave.id for pack in packs for grave in pack if grave.id.hex().endswith(ending)]
        after = page[-1][0].key
    return found[:limit]


async def bury(
    services: Services, tree: bytes, tombstones: Sequence[tuple[Record, Stored]], *, dry_run: bool
) -> tuple[int, int]:
    """Moves tombstones of a tree, none of which can be undone any more, out of their records. How many it has moved, and
    how many bytes fewer they take."""
    moved = freed = 0
    for start in range(0, len(tombstones), MOVED_AT_ONCE):
        batch = tombstones[start : start + MOVED_AT_ONCE]
        known = dict(await services.backend.scan(rows.GRAVES, tree=tree))
        writes = pure.burial(tree, known, [pure.of(stored) for _, stored in batch])
        records = [(found.id, found.data) for found, _ in batch]
        if not dry_run:
            try:
                # They are a condition, too: a tree that somebody else has collected must not get graves again.
                await services.backend.commit(Commit(tree=tree, rows=writes, require=records, delete_records=records))
            except CommitConflict:
                break  # another collection is at work: next time
        moved += len(batch)
        freed += sum(len(data) for _, data in records)
        freed += sum(len(known[write.key].value) for write in writes if write.key in known)
        freed -= sum(len(write.value) for write in writes if write.value is not None)
    return moved, freed
