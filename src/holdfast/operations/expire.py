"""expire: a tombstone replaces a checkpoint, which can no longer be read. gc removes its bytes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.port import ABSENT, Commit, CommitConflict, Record, RecordWrite, RowKey, RowWrite
from holdfast.errors import CheckpointExpiredError, CheckpointNotFoundError, ConflictError
from holdfast.format.rows import head as rows
from holdfast.format.rows import hold as holds
from holdfast.format.rows import operation_log
from holdfast.format.rows.operation_log import LoggedChange, Origin
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.operations import lease as leasing
from holdfast.operations import lookup, tag
from holdfast.operations import operation_log as log
from holdfast.operations.context import StoreContext


async def unexpire(ctx: StoreContext, id_: bytes, *, origin: Origin | None = None) -> bool:
    """Undo an expiry. Return False if the checkpoint had not expired. Heads stay where they are."""
    while True:
        commit = await bringing_back(ctx, id_)
        if commit is None:
            return False
        changes = [LoggedChange(operation_log.LIFE, id_, False, True)]
        commit.rows = log.writes(ctx, origin, commit.tree, "unexpire", changes, _session(commit))
        try:
            await ctx.backend.commit(commit)
        except CommitConflict:
            continue  # collected, or undone by another caller: read again
        return True


async def undo_expiry(
    ctx: StoreContext, id_: bytes, moved: Sequence[LoggedChange], origin: Origin
) -> tuple[bool, list[str]]:
    """Undo an expiry, and move the heads that it moved back to the checkpoint.

    A session that has advanced since, or that is leased, stays where it is: these sessions are
    returned.
    """
    while True:
        commit = await bringing_back(ctx, id_)
        if commit is None:
            return False, []
        changes = [LoggedChange(operation_log.LIFE, id_, False, True)]
        writes: list[RowWrite] = []
        left: list[str] = []
        for _, session, to, now in moved:
            found = await lookup.find_head(ctx, session, commit.tree)
            name = rows.session_name(session)
            if found is None or found[0].checkpoint != now:
                left.append(f"session {name!r:.60} has gone on since, and stays where it stands")
            elif not leasing.allows(ctx, found[0], None):
                left.append(f"session {name!r:.60} is being written to under a lease, and stays where it stands")
            else:
                head, row = found
                key = rows.head_key(session, commit.tree)
                writes.append(RowWrite(key, head._replace(checkpoint=to).pack(key), row.version))
                changes.append(LoggedChange(operation_log.HEAD, session, now, to))
                ctx.memory.drop(session)
        commit.rows = [*writes, *log.writes(ctx, origin, commit.tree, "unexpire", changes, _session(commit))]
        try:
            await ctx.backend.commit(commit)
        except CommitConflict:
            continue
        return True, left


async def bringing_back(ctx: StoreContext, id_: bytes) -> Commit | None:
    """Return the commit that puts an expired record back; None if it has not expired.

    The row that keeps the record's bytes is required, and stays: `gc` marks the references of such
    rows after it has read the records, so it can't miss a record that comes back meanwhile. The
    next `gc` drops the row.
    """
    [found] = await ctx.backend.records([id_])
    if found is None:
        if await lookup.find_record(ctx, id_) is not None:
            raise _too_late(id_)
        raise CheckpointNotFoundError(f"there is no checkpoint {ids.to_text(id_)}: nothing can be undone")
    stored = record.unpack(ctx.codec, found.data, expected_id=id_)
    if not await lookup.is_expired(ctx, stored):
        return None
    key = RowKey(rows.EXPIRED, id_, stored.tree)
    [row] = await ctx.backend.rows([key])
    if not stored.is_tombstone or row is None:
        raise _too_late(id_)
    original = rows.content(key, row)
    if record.unpack(ctx.codec, original, expected_id=id_).is_expired(ctx.now_us()):
        raise CheckpointExpiredError(f"checkpoint {ids.to_text(id_)} can't be brought back: its time to live is over")
    write = RecordWrite(id_, found.session, found.sequence, original, replaces=found.data)
    return Commit(tree=stored.tree, record=write, require_rows=[(key, row.version)])


def _session(commit: Commit) -> str | None:
    return None if commit.record is None else rows.session_name(commit.record.session)


def _too_late(id_: bytes) -> CheckpointExpiredError:
    return CheckpointExpiredError(
        f"checkpoint {ids.to_text(id_)} can't be brought back: its time to live is over, or `gc` has removed what it "
        "held since it expired"
    )


BY_HAND, BY_TTL = "expired by hand", "time to live"
BURIED_AT_ONCE = 200  # in one commit
MAX_ATTEMPTS = 200

Found = tuple[Record, StoredRecord]  # a record as it is stored, and as it is read


async def expire(ctx: StoreContext, id_: bytes, *, origin: Origin | None = None) -> bool:
    """Expire a checkpoint. Return False if it did not exist or had expired before.

    Children keep working. A pinned or tagged checkpoint is refused.
    """
    while True:
        [found] = await ctx.backend.records([id_])
        if found is None:
            return False
        stored = record.unpack(ctx.codec, found.data, expected_id=id_)
        if stored.is_tombstone:
            return False
        was_readable = not stored.is_expired(ctx.now_us())
        if await tombstone_all(ctx, stored.tree, [(found, stored)], BY_HAND, origin=origin):
            return was_readable
        # Another caller has expired it, or something holds it. A hold may also be left over from a
        # tag that has moved.
        await refuse_if_held(ctx, stored)


async def refuse_if_held(ctx: StoreContext, stored: StoredRecord) -> None:
    hold = await tag.settle(ctx, holds.hold_key(stored.id, stored.tree))
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


async def tombstone_all(
    ctx: StoreContext,
    tree: bytes,
    ending: Sequence[Found],
    why: str,
    *,
    keep_heads: bool = False,
    origin: Origin | None = None,
) -> list[bytes]:
    """Expire checkpoints of one tree, many in one commit, and return the ids of those expired.

    A checkpoint that is not among them is pinned or tagged, was expired or collected by another
    caller meanwhile, or lost many commits in a row to conflicts.

    Rows keep the bytes of readable checkpoints until they are collected. Heads that are at one of
    them move to its nearest live ancestor. With `keep_heads`, a session's head is left alone
    instead, also if it arrived there just now. After a crash half way, some are expired, and only
    their heads have moved.
    """
    buried: list[bytes] = []
    heads: list[tuple[RowKey, int]] = []
    oldest_first = sorted(ending, key=lambda pair: pair[1].sequence)  # so that a head moves only once, mostly
    for start in range(0, len(oldest_first), BURIED_AT_ONCE):
        batch = oldest_first[start : start + BURIED_AT_ONCE]
        for _ in range(MAX_ATTEMPTS):
            if keep_heads:
                batch, heads = await _drop_heads(ctx, tree, batch)
            if not batch:
                break
            commit, changes = await tombstone_commit(ctx, tree, batch, why)
            commit.require_rows = [*commit.require_rows, *heads]
            if origin is not None:
                commit.rows = [*commit.rows, *_log_expiry(ctx, origin, tree, batch, why, changes)]
            try:
                await ctx.backend.commit(commit)
            except CommitConflict:  # a head moved, or another caller expired or pinned one of them: read again
                batch = await _drop_buried(ctx, tree, batch)
            else:
                buried += [stored.id for _, stored in batch]
                origin = origin and origin._replace(part=origin.part + 1)
                break
    return buried


def _log_expiry(
    ctx: StoreContext, origin: Origin, tree: bytes, batch: Sequence[Found], why: str, moved: Sequence[LoggedChange]
) -> list[RowWrite]:
    if why != BY_HAND:  # by a policy: it is collected at once, so that a count is enough
        changes = [LoggedChange(operation_log.MANY, why.encode(), None, len(batch))]
        return log.writes(ctx, origin, tree, "retain", changes)
    changes = [LoggedChange(operation_log.LIFE, stored.id, True, False) for _, stored in batch]
    return log.writes(ctx, origin, tree, "expire", [*changes, *moved], batch[0][1].session)


async def _drop_heads(
    ctx: StoreContext, tree: bytes, batch: Sequence[Found]
) -> tuple[list[Found], list[tuple[RowKey, int]]]:
    """Return those that are no session's head, and the heads' rows as conditions for the commit."""
    heads = await ctx.backend.scan(rows.HEAD, tree=tree)
    stood_at = {rows.unpack_head(key, row).checkpoint for key, row in heads}
    return [pair for pair in batch if pair[1].id not in stood_at], [(key, row.version) for key, row in heads]


async def tombstone_commit(
    ctx: StoreContext, tree: bytes, batch: Sequence[Found], why: str
) -> tuple[Commit, list[LoggedChange]]:
    """Return the commit that replaces these records by tombstones and moves their heads; and the moves."""
    moves: list[LoggedChange] = []
    now = ctx.now_us()
    ending = {stored.id: stored for _, stored in batch}
    writes: list[RowWrite] = []
    ancestors: dict[bytes, None] = {}
    for key, row in await ctx.backend.scan(rows.HEAD, tree=tree):
        head = rows.unpack_head(key, row)
        if head.checkpoint in ending:
            ancestor = await lookup.find_nearest_live(ctx, ending[head.checkpoint].parent, tree, but_not=ending)
            if ancestor is not None:
                ancestors[ancestor.id] = None
            moved = head._replace(checkpoint=ancestor.id if ancestor else None)
            writes.append(RowWrite(key, moved.pack(key), row.version))
            moves.append(LoggedChange(operation_log.HEAD, key.key, head.checkpoint, moved.checkpoint))
            ctx.memory.drop(key.key)
    replacements = []
    for found, stored in batch:
        tombstone = record.pack_tombstone(ctx.codec, stored, now, why)
        replacements.append(RecordWrite(found.id, found.session, found.sequence, tombstone, replaces=found.data))
        if not stored.is_expired(now):  # otherwise an undo would bring nothing back
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


async def _drop_buried(ctx: StoreContext, tree: bytes, batch: Sequence[Found]) -> list[Found]:
    """Return those that are still there, as they are now, without tombstones and held ones."""
    wanted = [found.id for found, _ in batch]
    again = await ctx.backend.records(wanted)
    held = await ctx.backend.rows([holds.hold_key(id_, tree) for id_ in wanted])
    free = [found for found, hold in zip(again, held, strict=True) if found is not None and hold is None]
    read = [(found, record.unpack(ctx.codec, found.data, expected_id=found.id)) for found in free]
    return [(found, stored) for found, stored in read if not stored.is_tombstone]
