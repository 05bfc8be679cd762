"""expire: a checkpoint may no longer be read. A tombstone takes its place; its bytes go when they are collected."""

from __future__ import annotations

from holdfast.backends.port import Commit, CommitConflict, Record, RecordWrite, RowKey, RowWrite
from holdfast.objects import record, rows
from holdfast.objects.record import Stored
from holdfast.operations import reading
from holdfast.operations.services import Services

BY_HAND, BY_TTL = "expired by hand", "time to live"


async def expire(services: Services, id_: bytes) -> bool:
    """True if it is expired now, False if it was not there or had expired before. Children keep working."""
    while True:
        [found] = await services.backend.records([id_])
        if found is None:
            return False
        stored = record.unpack(services.codec, found.data, expected_id=id_)
        if stored.is_tombstone:
            return False
        try:
            await bury(services, found, stored, BY_HAND)
        except CommitConflict:
            continue  # a head moved, or somebody else expired it: look again
        return not stored.is_expired(services.now_us())


async def bury(services: Services, found: Record, stored: Stored, why: str) -> None:
    """Puts a tombstone in the record's place, keeps its bytes in a row until they are collected, and moves the heads
    that stand at it to its nearest live ancestor."""
    heads = []
    ancestor = None
    for key, row in await services.backend.scan(rows.HEAD, tree=stored.tree):
        head = rows.unpack_head(key, row)
        if head.checkpoint == stored.id:
            ancestor = ancestor or await reading.nearest_live(services, stored.parent)
            moved = head._replace(checkpoint=ancestor.id if ancestor else None)
            heads.append(RowWrite(key, moved.pack(key), row.version))
            services.memory.drop(key.key)
    kept = RowKey(rows.EXPIRED, stored.id, stored.tree)
    tombstone = record.pack_tombstone(services.codec, stored, services.now_us(), why)
    await services.backend.commit(
        Commit(
            tree=stored.tree,
            record=RecordWrite(found.id, found.session, found.sequence, tombstone, replaces=found.data),
            rows=[*heads, RowWrite(kept, rows.protect(kept, found.data))],
        )
    )
