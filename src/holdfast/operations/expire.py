"""expire: a checkpoint may no longer be read. A tombstone takes its place; its bytes go when they are collected."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.port import ABSENT, Commit, CommitConflict, Record, RecordWrite, RowKey, RowWrite
from holdfast.errors import ConflictError
from holdfast.model import ids
from holdfast.objects import holds, oplog, record, rows
from holdfast.objects.oplog import Change, Origin
from holdfast.objects.record import Stored
from holdfast.operations import oplog as log
from holdfast.operations import reading, tags
from holdfast.operations.services import Services

BY_HAND, BY_TTL = "expired by hand", "time to live"
BURIED_AT_ONCE = 200  # in one commit
MAX_ATTEMPTS = 200

Found = tuple[Record, Stored]  # a record as it is stored, and as it reads


async def expire(services: Services, id_: bytes, *, origin: Origin | None = None) -> bool:
    """True if it is expired now, False if it was not there or had expired before. Children keep working. What is pinned
    or tagged is refused."""
    while True:
        [found] = await services.backend.records([id_])
        if found is None:
            return False
        stored = record.unpack(services.codec, found.data, expected_id=id_)
        if stored.is_tombstone:
            return False
        was_readable = not stored.is_expired(services.now_us())
        if await bury_all(services, stored.tree, [(found, stored)], BY_HAND, origin=origin):
            return was_readable
        # Somebody else has expired it, or something holds it; a hold may also be one that its tag has left.
        await refuse_if_held(services, stored)


async def refuse_if_held(services: Services, stored: Stored) -> None:
    hold = await tags.settle(services, holds.hold_key(stored.id, stored.tree))
    id_text = ids.to_text(stored.id)
    if hold.pinned_at_us is not None:
        note = f" ({rows.session_name(hold.note)!r:.60})" if hold.note else ""
        raise ConflictError(
            f"checkpoint {id_text} is pinned{note}: it is kept until `unpin` "
            f"(`holdfast pin --remove {ids.short(id_text)}`) lets it go"
        )
    if hold.tags:
        names = ", ".join(f"{rows.session_name(name)!r:.60}" for name in hold.tags)
        raise ConflictError(
            f"checkpoint {id_text} is tagged {names}: what has a name is kept. `untag` (`holdfast tag --delete NAME`) "
            "lets it go"
        )


async def bury_all(
    services: Services,
    tree: bytes,
    ending: Sequence[Found],
    why: str,
    *,
    keep_heads: bool = False,
    origin: Origin | None = None,
) -> list[bytes]:
    """Expires checkpoints of one tree, many in one commit. Gives the ids of those that it has put a tombstone in the
    place of; who is not among them is pinned or tagged, was expired or collected by somebody else meanwhile, or is in
    such demand that many attempts met a change.

    The bytes of what could still be read are kept in rows until they are collected. Heads that stand at one of them
    move to its nearest live ancestor; with `keep_heads`, what a session stands at is left instead, also if it has come
    there just now. Whoever dies half way has expired some, and moved heads no further than that.
    """
    buried: list[bytes] = []
    heads: list[tuple[RowKey, int]] = []
    oldest_first = sorted(ending, key=lambda pair: pair[1].sequence)  # so that a head moves once, mostly
    for start in range(0, len(oldest_first), BURIED_AT_ONCE):
        batch = oldest_first[start : start + BURIED_AT_ONCE]
        for _ in range(MAX_ATTEMPTS):
            if keep_heads:
                batch, heads = await _not_stood_at(services, tree, batch)
            if not batch:
                break
            commit, changes = await burial(services, tree, batch, why)
            commit.require_rows = [*commit.require_rows, *heads]
            if origin is not None:
                commit.rows = [*commit.rows, *_logged(services, origin, tree, batch, why, changes)]
            try:
                await services.backend.commit(commit)
            except CommitConflict:  # a head moved, or somebody else expired or pinned one of them: look again
                batch = await _not_buried(services, tree, batch)
            else:
                buried += [stored.id for _, stored in batch]
                origin = origin and origin._replace(part=origin.part + 1)
                break
    return buried


def _logged(
    services: Services, origin: Origin, tree: bytes, batch: Sequence[Found], why: str, moved: Sequence[Change]
) -> list[RowWrite]:
    if why != BY_HAND:  # by a policy: it is collected at once, so that a number says it all
        changes = [Change(oplog.MANY, why.encode(), None, len(batch))]
        return log.writes(services, origin, tree, "retain", changes)
    changes = [Change(oplog.LIFE, stored.id, True, False) for _, stored in batch]
    return log.writes(services, origin, tree, "expire", [*changes, *moved], batch[0][1].session)


async def _not_stood_at(
    services: Services, tree: bytes, batch: Sequence[Found]
) -> tuple[list[Found], list[tuple[RowKey, int]]]:
    """Those that no session stands at, and the heads' rows that say so, as a commit can require them."""
    heads = await services.backend.scan(rows.HEAD, tree=tree)
    stood_at = {rows.unpack_head(key, row).checkpoint for key, row in heads}
    return [pair for pair in batch if pair[1].id not in stood_at], [(key, row.version) for key, row in heads]


async def burial(services: Services, tree: bytes, batch: Sequence[Found], why: str) -> tuple[Commit, list[Change]]:
    """The commit that puts tombstones in the places of these records, and moves the heads that stand at them; and how these
    move."""
    moves: list[Change] = []
    now = services.now_us()
    ending = {stored.id: stored for _, stored in batch}
    writes: list[RowWrite] = []
    ancestors: dict[bytes, None] = {}
    for key, row in await services.backend.scan(rows.HEAD, tree=tree):
        head = rows.unpack_head(key, row)
        if head.checkpoint in ending:
            ancestor = await reading.nearest_live(services, ending[head.checkpoint].parent, tree, but_not=ending)
            if ancestor is not None:
                ancestors[ancestor.id] = None
            moved = head._replace(checkpoint=ancestor.id if ancestor else None)
            writes.append(RowWrite(key, moved.pack(key), row.version))
            moves.append(Change(oplog.HEAD, key.key, head.checkpoint, moved.checkpoint))
            services.memory.drop(key.key)
    replacements = []
    for found, stored in batch:
        tombstone = record.pack_tombstone(services.codec, stored, now, why)
        replacements.append(RecordWrite(found.id, found.session, found.sequence, tombstone, replaces=found.data))
        if not stored.is_expired(now):  # otherwise undoing would bring nothing back
            kept = RowKey(rows.EXPIRED, stored.id, tree)
            writes.append(RowWrite(kept, rows.protect(kept, found.data)))
    commit = Commit(
        tree=tree,
        more_records=replacements,
        rows=writes,
        require=[(id_, record.LIVE) for id_ in ancestors],
        require_rows=[(holds.hold_key(id_, tree), ABSENT) for id_ in ending],
    )
    return commit, moves


async def _not_buried(services: Services, tree: bytes, batch: Sequence[Found]) -> list[Found]:
    """Those that are still there, as they are now, no tombstones, and not held."""
    wanted = [found.id for found, _ in batch]
    again = await services.backend.records(wanted)
    held = await services.backend.rows([holds.hold_key(id_, tree) for id_ in wanted])
    free = [found for found, hold in zip(again, held, strict=True) if found is not None and hold is None]
    read = [(found, record.unpack(services.codec, found.data, expected_id=found.id)) for found in free]
    return [(found, stored) for found, stored in read if not stored.is_tombstone]
