"""tag, untag, tags: names for checkpoints. What has a name is kept like what is pinned.

A tag is two rows: the hold on its checkpoint names it, in the checkpoint's tree, and a row of the store says where it
stands. Both are written by one commit, in which the checkpoint must be live. When a tag moves, its name stays in the
hold it has left until that is settled: interrupted, too much is kept, never too little.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.backends.port import ABSENT, Commit, CommitConflict, Row, RowKey, RowWrite
from holdfast.errors import ConflictError
from holdfast.model import ids
from holdfast.model.holds import Tag
from holdfast.objects import holds, oplog, record, rows
from holdfast.objects.holds import Hold, TagRow
from holdfast.objects.oplog import Change, Origin
from holdfast.objects.record import EPOCH, Stored
from holdfast.operations import oplog as log
from holdfast.operations import reading
from holdfast.operations.services import Services

PAGE = 200


async def tag(services: Services, name: str, id_: bytes, *, force: bool = False, origin: Origin | None = None) -> Tag:
    """Names a live checkpoint. A name that stands elsewhere moves only with `force`."""
    raw = rows.session_key(name)
    key = holds.tag_key(raw)
    while True:
        stored = await reading.live_record(services, id_)
        [row] = await services.backend.rows([key])
        there = await _standing(services, raw, row)
        if there is not None:
            if there.checkpoint == id_:
                return _tag(name, there)
            if not force:
                raise ConflictError(
                    f"tag {name!r:.60} stands at {ids.to_text(there.checkpoint)} already. `force=True` moves it "
                    f"(`holdfast tag --force`); another name leaves it where it is"
                )
        made = TagRow(id_, stored.tree, services.now_us())
        try:
            await _place(services, raw, row, there, made, stored, origin)
        except CommitConflict:
            continue  # it has expired just now, or another was first
        return _tag(name, made)


async def untag(services: Services, name: str, *, origin: Origin | None = None) -> bool:
    """True if there was such a tag. Its checkpoint stays, but is no longer kept by it."""
    raw = rows.session_key(name)
    key = holds.tag_key(raw)
    while True:
        [row] = await services.backend.rows([key])
        if row is None:
            return False
        try:
            return await _remove(services, raw, row, origin)
        except CommitConflict:
            continue  # another was first


async def put_back(services: Services, change: Change, origin: Origin) -> None:
    """Makes a tag what it was before a change, if nobody has changed it since."""
    _, raw, to, now = change
    key = holds.tag_key(raw)
    while True:
        [row] = await services.backend.rows([key])
        there = await _standing(services, raw, row)
        if (None if there is None else list(there)) != now:
            at = "gone" if there is None else f"at {ids.to_text(there.checkpoint)}"
            raise ConflictError(
                f"tag {rows.session_name(raw)!r:.60} was moved since: it is {at} now, and is left so. `holdfast tag` lists the "
                "tags"
            )
        try:
            if to is not None:
                stored = await reading.live_record(services, to[0])
                await _place(services, raw, row, there, TagRow(*to), stored, origin)
            elif row is not None:
                await _remove(services, raw, row, origin)
        except CommitConflict:
            continue
        return


async def _place(
    services: Services,
    raw: bytes,
    row: Row | None,
    there: TagRow | None,
    made: TagRow,
    stored: Stored,
    origin: Origin | None,
) -> None:
    """Lets a tag, which stands `there`, stand at a live checkpoint."""
    key = holds.tag_key(raw)
    hold_key = holds.hold_key(stored.id, stored.tree)
    [hold_row] = await services.backend.rows([hold_key])
    hold = holds.unpack_hold(hold_key, hold_row).with_tag(raw)
    changes = [Change(oplog.TAG, raw, None if there is None else list(there), list(made))]
    await services.backend.commit(
        Commit(
            tree=stored.tree,
            # The hold is written even if it has the name already: whoever settles it must notice.
            rows=[
                _write(hold_key, hold.pack(hold_key), hold_row),
                _write(key, made.pack(key), row),
                *log.writes(services, origin, stored.tree, "tag", changes, stored.session),
            ],
            require=[(stored.id, record.LIVE)],
        )
    )
    if there is not None and there.checkpoint != stored.id:
        await settle(services, holds.hold_key(there.checkpoint, there.tree))


async def _remove(services: Services, raw: bytes, row: Row, origin: Origin | None) -> bool:
    """Whether the tag counted."""
    key = holds.tag_key(raw)
    there = holds.unpack_tag(key, row)
    hold_key = holds.hold_key(there.checkpoint, there.tree)
    [hold_row] = await services.backend.rows([hold_key])
    hold = holds.unpack_hold(hold_key, hold_row)
    writes = [RowWrite(key, None, row.version, row.value)]
    if raw in hold.tags:
        stored = await reading.find_record(services, there.checkpoint, there.tree)
        session = None if stored is None else stored.session
        writes.append(_write(hold_key, hold.without_tags({raw}).pack(hold_key), hold_row))
        changes = [Change(oplog.TAG, raw, list(there), None)]
        writes += log.writes(services, origin, there.tree, "untag", changes, session)
    await services.backend.commit(Commit(tree=there.tree, rows=writes))
    return raw in hold.tags


async def _standing(services: Services, raw: bytes, row: Row | None) -> TagRow | None:
    """Where a tag stands, if its row counts."""
    there = holds.unpack_tag(holds.tag_key(raw), row) if row else None
    return there if there is not None and await _counts(services, raw, there) else None


async def tags(services: Services) -> list[Tag]:
    """All tags, by name."""
    found: list[Tag] = []
    after: bytes | None = None
    while page := await services.backend.scan(holds.TAG, after=after, limit=PAGE):
        after = page[-1][0].key
        standing = [(key.key, holds.unpack_tag(key, row)) for key, row in page]
        hold_keys = [holds.hold_key(one.checkpoint, one.tree) for _, one in standing]
        hold_rows = await services.backend.rows(hold_keys)
        for (name, one), key, row in zip(standing, hold_keys, hold_rows, strict=True):
            if name in holds.unpack_hold(key, row).tags:
                found.append(_tag(rows.session_name(name), one))
    return found


async def tagged(services: Services, name: str) -> Tag | None:
    """The tag of that name, None if there is none."""
    raw = rows.session_key(name)
    key = holds.tag_key(raw)
    [row] = await services.backend.rows([key])
    there = await _standing(services, raw, row)
    return None if there is None else _tag(name, there)


async def settle(services: Services, key: RowKey) -> Hold:
    """The hold of that key, as it is without the names of tags that stand elsewhere now."""
    while True:
        # The hold first: a tag that comes back later writes it again, and the comparison below fails.
        [row] = await services.backend.rows([key])
        hold = holds.unpack_hold(key, row)
        left = hold.without_tags({name for name in hold.tags if await _has_left(services, name, key.key)})
        if left == hold:
            return hold
        try:
            await services.backend.commit(Commit(tree=key.tree, rows=[_write(key, left.pack(key), row)]))
        except CommitConflict:
            continue
        return left


async def settle_all(services: Services) -> dict[RowKey, Hold]:
    """All holds, each settled."""
    found: dict[RowKey, Hold] = {}
    after: bytes | None = None
    while page := await services.backend.scan(holds.PIN, after=after, limit=PAGE):
        after = page[-1][0].key
        for key, row in page:
            hold = holds.unpack_hold(key, row)
            found[key] = await settle(services, key) if hold.tags else hold
    return {key: hold for key, hold in found.items() if hold != holds.NOT_HELD}


async def _has_left(services: Services, name: bytes, checkpoint: bytes) -> bool:
    """Whether the tag is gone, or stands at another checkpoint for certain."""
    key = holds.tag_key(name)
    [row] = await services.backend.rows([key])
    if row is None:
        return True
    standing = holds.unpack_tag(key, row)
    return standing.checkpoint != checkpoint and await _counts(services, name, standing)


async def _counts(services: Services, name: bytes, standing: TagRow) -> bool:
    key = holds.hold_key(standing.checkpoint, standing.tree)
    [row] = await services.backend.rows([key])
    return name in holds.unpack_hold(key, row).tags


def _write(key: RowKey, value: bytes | None, was: Row | None) -> RowWrite:
    return RowWrite(key, value, was.version if was else ABSENT, was.value if was else None)


def _tag(name: str, standing: TagRow) -> Tag:
    return Tag(
        name=name,
        checkpoint_id=ids.to_text(standing.checkpoint),
        tagged_at=EPOCH + timedelta(microseconds=standing.tagged_at_us),
    )
