"""tag, untag, tags: names for checkpoints. A tagged checkpoint is kept like a pinned one.

A tag is two rows: the hold on its checkpoint names it, in the checkpoint's tree, and a row of the
store names its target. Both are written by one commit, in which the checkpoint must be live. When a
tag moves, its name stays in the hold that it has left until that is settled: after a crash, too
much is kept, never too little.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import NamedTuple

from holdfast.backends.port import ABSENT, Commit, CommitConflict, Row, RowKey, RowWrite
from holdfast.errors import ConflictError
from holdfast.format.rows import head, operation_log
from holdfast.format.rows import hold as holds
from holdfast.format.rows.hold import Hold, TagRow
from holdfast.format.rows.operation_log import LoggedChange, Origin
from holdfast.format.state import record
from holdfast.format.state.record import EPOCH, StoredRecord
from holdfast.model import ids
from holdfast.model.pin import Tag
from holdfast.operations import lookup
from holdfast.operations import operation_log as log
from holdfast.operations.context import StoreContext
from holdfast.operations.damaged_row import read_or_note

PAGE = 200
UNDER_WAY_SECONDS, RETRY_SECONDS = 0.4, 0.02


class TagState(NamedTuple):
    """The stored state of a tag: its row, and its target, if the row counts."""

    key: RowKey
    row: Row | None
    current: TagRow | None

    def write(self, made: TagRow) -> RowWrite:
        """Return the write that moves the tag, unless it was moved meanwhile."""
        return _write(self.key, made.pack(self.key), self.row)

    def change(self, made: TagRow) -> LoggedChange:
        return LoggedChange(
            operation_log.TAG, self.key.key, None if self.current is None else list(self.current), list(made)
        )


async def load_tag(ctx: StoreContext, name: str) -> TagState:
    """Return a tag as it is now, for a caller that wants to place it.

    A tag that its checkpoint does not name counts as absent: its commit was refused. Where a commit
    is spread over nodes it may also be in progress, and gets a moment to become visible as a whole.
    """
    key = holds.tag_key(head.session_key(name))
    found = await _looked_up(ctx, key)
    for _ in range(round(UNDER_WAY_SECONDS / RETRY_SECONDS)):
        if found.row is None or found.current is not None:
            break
        await ctx.backend.sleep(RETRY_SECONDS)
        found = await _looked_up(ctx, key)
    return found


async def _looked_up(ctx: StoreContext, key: RowKey) -> TagState:
    [row] = await ctx.backend.rows([key])
    return TagState(key, row, await _visible_row(ctx, key.key, row))


def stands_elsewhere(name: str, current: TagRow, moves: str, outcome: str) -> ConflictError:
    return ConflictError(
        f"tag {name!r:.60} stands at {ids.to_text(current.checkpoint)} already. {moves}; another name leaves it where "
        f"it is. {outcome}"
    )


async def tag(ctx: StoreContext, name: str, id_: bytes, *, force: bool = False, origin: Origin | None = None) -> Tag:
    """Tag a live checkpoint. A tag on another checkpoint moves only with `force`."""
    while True:
        stored = await lookup.load_live_record(ctx, id_)
        now = await load_tag(ctx, name)
        if now.current is not None:
            if now.current.checkpoint == id_:
                return _tag(name, now.current)
            if not force:
                moves = "`force=True` moves it (`holdfast tag --force`)"
                raise stands_elsewhere(name, now.current, moves, "Nothing was changed")
        made = TagRow(id_, stored.tree, ctx.now_us())
        try:
            await _place(ctx, now, made, stored, origin)
        except CommitConflict:
            continue  # it has expired just now, or another caller was first
        return _tag(name, made)


async def untag(ctx: StoreContext, name: str, *, origin: Origin | None = None) -> bool:
    """Remove a tag; return whether there was one. Its checkpoint stays, but is no longer kept by it."""
    raw = head.session_key(name)
    key = holds.tag_key(raw)
    while True:
        [row] = await ctx.backend.rows([key])
        if row is None:
            return False
        try:
            return await _remove(ctx, raw, row, origin)
        except CommitConflict:
            continue  # another caller was first


async def put_back(ctx: StoreContext, change: LoggedChange, origin: Origin) -> None:
    """Restore a tag as it was before a change, if it has not changed since."""
    _, raw, to, now = change
    key = holds.tag_key(raw)
    while True:
        found = await _looked_up(ctx, key)
        current = found.current
        if (None if current is None else list(current)) != now:
            at = "gone" if current is None else f"at {ids.to_text(current.checkpoint)}"
            raise ConflictError(
                f"tag {head.session_name(raw)!r:.60} was moved since: it is {at} now, and is left so. `holdfast tag` "
                "lists the tags"
            )
        try:
            if to is not None:
                stored = await lookup.load_live_record(ctx, to[0])
                await _place(ctx, found, TagRow(*to), stored, origin)
            elif found.row is not None:
                await _remove(ctx, raw, found.row, origin)
        except CommitConflict:
            continue
        return


async def _place(ctx: StoreContext, now: TagState, made: TagRow, stored: StoredRecord, origin: Origin | None) -> None:
    """Move a tag from its present target to a live checkpoint."""
    current = now.current
    hold_key = holds.hold_key(stored.id, stored.tree)
    [hold_row] = await ctx.backend.rows([hold_key])
    hold = holds.unpack_hold(hold_key, hold_row).with_tag(now.key.key)
    await ctx.backend.commit(
        Commit(
            tree=stored.tree,
            # The hold is written even if it has the name already: a concurrent `settle` must
            # notice.
            rows=[
                _write(hold_key, hold.pack(hold_key), hold_row),
                now.write(made),
                *log.writes(ctx, origin, stored.tree, "tag", [now.change(made)], stored.session),
            ],
            require=[(stored.id, record.LIVE)],
        )
    )
    if current is not None and current.checkpoint != stored.id:
        await settle(ctx, holds.hold_key(current.checkpoint, current.tree))


async def _remove(ctx: StoreContext, raw: bytes, row: Row, origin: Origin | None) -> bool:
    """Remove a tag; return whether it counted."""
    key = holds.tag_key(raw)
    current = holds.unpack_tag(key, row)
    hold_key = holds.hold_key(current.checkpoint, current.tree)
    [hold_row] = await ctx.backend.rows([hold_key])
    hold = holds.unpack_hold(hold_key, hold_row)
    writes = [RowWrite(key, None, row.version, row.value)]
    if raw in hold.tags:
        stored = await lookup.find_record(ctx, current.checkpoint, current.tree)
        session = None if stored is None else stored.session
        writes.append(_write(hold_key, hold.without_tags({raw}).pack(hold_key), hold_row))
        changes = [LoggedChange(operation_log.TAG, raw, list(current), None)]
        writes += log.writes(ctx, origin, current.tree, "untag", changes, session)
    await ctx.backend.commit(Commit(tree=current.tree, rows=writes))
    return raw in hold.tags


async def _visible_row(ctx: StoreContext, raw: bytes, row: Row | None) -> TagRow | None:
    """Return the target of a tag, if its row counts."""
    current = holds.unpack_tag(holds.tag_key(raw), row) if row else None
    return current if current is not None and await _counts(ctx, raw, current) else None


async def tags(ctx: StoreContext, limit: int | None = None, *, damaged: list[str] | None = None) -> list[Tag]:
    """Return all tags, or the first `limit` of them, by name. See `read_or_note` for `damaged`."""
    found: list[Tag] = []
    after: bytes | None = None
    enough = None if ctx.backend.capabilities.sealed else limit  # which scans names in an order of its own
    while (enough is None or len(found) < enough) and (
        page := await ctx.backend.scan(holds.TAG, after=after, limit=PAGE)
    ):
        after = page[-1][0].key
        standing = [
            (key.key, tag_row)
            for key, row in page
            if (tag_row := read_or_note(partial(holds.unpack_tag, key, row), damaged)) is not None
        ]
        hold_keys = [holds.hold_key(tag_row.checkpoint, tag_row.tree) for _, tag_row in standing]
        hold_rows = await ctx.backend.rows(hold_keys)
        for (name, tag_row), key, row in zip(standing, hold_keys, hold_rows, strict=True):
            hold = read_or_note(partial(holds.unpack_hold, key, row), damaged)
            if hold is not None and name in hold.tags:
                found.append(_tag(head.session_name(name), tag_row))
    if ctx.backend.capabilities.sealed:
        found.sort(key=lambda tag: head.session_key(tag.name))
    return found[:limit]


async def get_tag(ctx: StoreContext, name: str) -> Tag | None:
    """Return the tag of that name, None if there is none."""
    current = (await _looked_up(ctx, holds.tag_key(head.session_key(name)))).current
    return None if current is None else _tag(name, current)


async def settle(ctx: StoreContext, key: RowKey) -> Hold:
    """Remove the names of tags that have moved from the hold of that key, and return the hold."""
    while True:
        # The hold first: a tag that comes back later writes it again, and the comparison below fails.
        [row] = await ctx.backend.rows([key])
        hold = holds.unpack_hold(key, row)
        left = hold.without_tags({name for name in hold.tags if await _has_left(ctx, name, key.key)})
        if left == hold:
            return hold
        try:
            await ctx.backend.commit(Commit(tree=key.tree, rows=[_write(key, left.pack(key), row)]))
        except CommitConflict:
            continue
        return left


async def settle_all(ctx: StoreContext) -> dict[RowKey, Hold]:
    """Settle all holds, and return them."""
    found: dict[RowKey, Hold] = {}
    after: bytes | None = None
    while page := await ctx.backend.scan(holds.PIN, after=after, limit=PAGE):
        after = page[-1][0].key
        for key, row in page:
            hold = holds.unpack_hold(key, row)
            found[key] = await settle(ctx, key) if hold.tags else hold
    return {key: hold for key, hold in found.items() if hold != holds.NOT_HELD}


async def _has_left(ctx: StoreContext, name: bytes, checkpoint: bytes) -> bool:
    """Return whether the tag is gone, or is on another checkpoint for certain."""
    key = holds.tag_key(name)
    [row] = await ctx.backend.rows([key])
    if row is None:
        return True
    standing = holds.unpack_tag(key, row)
    return standing.checkpoint != checkpoint and await _counts(ctx, name, standing)


async def _counts(ctx: StoreContext, name: bytes, standing: TagRow) -> bool:
    key = holds.hold_key(standing.checkpoint, standing.tree)
    [row] = await ctx.backend.rows([key])
    return name in holds.unpack_hold(key, row).tags


def _write(key: RowKey, value: bytes | None, was: Row | None) -> RowWrite:
    return RowWrite(key, value, was.version if was else ABSENT, was.value if was else None)


def _tag(name: str, standing: TagRow) -> Tag:
    return Tag(
        name=name,
        checkpoint_id=ids.to_text(standing.checkpoint),
        tagged_at=EPOCH + timedelta(microseconds=standing.tagged_at_us),
    )
