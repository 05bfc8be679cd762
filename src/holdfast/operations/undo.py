"""revert: takes back an entry of the operation log. All of it, in one commit, or nothing.

Everything must still be as the operation left it. Later work that depends on it is never removed:
the error names it. A workspace takes back the changes of an operation to files
(`holdfast.client.undo`).
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.port import Commit, CommitConflict, Record, Row, RowKey, RowWrite
from holdfast.errors import CheckpointExpiredError, ConflictError
from holdfast.format.rows import head as rows
from holdfast.format.rows import operation_log
from holdfast.format.rows.operation_log import LoggedChange, OperationEntry, Origin
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.reports import RollbackReport
from holdfast.operations import expire, lookup, pin, rollback, tag
from holdfast.operations import expire as unexpire
from holdfast.operations import lease as leasing
from holdfast.operations import operation_log as log
from holdfast.operations.context import StoreContext

UNDONE = "its fork was undone"


async def revert(ctx: StoreContext, entry: OperationEntry, origin: Origin) -> tuple[list[str], RollbackReport | None]:
    """Take an entry back; return the unchanged parts, and the remains of the move of a head."""
    by_kind: dict[str, list[LoggedChange]] = {}
    for change in entry.changes:
        by_kind.setdefault(change.kind, []).append(change)
    heads = by_kind.get(operation_log.HEAD, [])
    if operation_log.LIFE in by_kind:
        [life] = by_kind[operation_log.LIFE]
        return await _life(ctx, entry, life, heads, origin), None
    if operation_log.SESSION in by_kind:
        sessions = by_kind[operation_log.SESSION]
        await (_end if sessions[0].before is None else _begin)(ctx, entry, sessions, origin)
        return [], None
    if heads:
        [head] = heads
        return [], await _head(ctx, entry, head, origin)
    for change in by_kind.get(operation_log.TAG, []):
        await tag.put_back(ctx, change, origin)
    for change in by_kind.get(operation_log.PIN, []):
        await pin.put_back(ctx, change, origin)
    if operation_log.MANY in by_kind:
        raise CheckpointExpiredError(
            f"operation {ids.to_text(entry.id)} can't be undone: retention collects what it lets go at once"
        )
    return [], None


async def refuse_moved_on(ctx: StoreContext, entry: OperationEntry, change: LoggedChange) -> None:
    """Raise an error if a session's head is no longer where an operation has left it."""
    head = await lookup.find_head(ctx, change.name, entry.tree or await _tree(ctx, change.name))
    stands_at = None if head is None else head[0].checkpoint
    if stands_at == change.after:
        return
    session = rows.session_name(change.name)
    back = "" if change.before is None else (
        f" `holdfast rollback {session!r:.60} {ids.to_text(change.before)[-8:]}` moves it there all the same"
    )  # fmt: skip
    raise ConflictError(
        f"session {session!r:.60} has gone on since: it stands at {_id(stands_at)}, and operation "
        f"{ids.to_text(entry.id)} had "
        f"left it at {_id(change.after)}. Nothing was changed.{back}"
    )


async def _tree(ctx: StoreContext, session: bytes) -> bytes:
    return await lookup.find_tree(ctx, session) or b""


async def _head(
    ctx: StoreContext, entry: OperationEntry, change: LoggedChange, origin: Origin
) -> RollbackReport | None:
    await refuse_moved_on(ctx, entry, change)
    session = rows.session_name(change.name)
    if change.before is None:
        await _move_to_nothing(ctx, entry, change, origin)
        return None
    return await rollback.rollback(ctx, session, change.before, expect_head=change.after, origin=origin)


async def _move_to_nothing(ctx: StoreContext, entry: OperationEntry, change: LoggedChange, origin: Origin) -> None:
    """Move the session's head to no checkpoint: all of its checkpoints had expired."""
    session = rows.session_name(change.name)
    tree = entry.tree or await _tree(ctx, change.name)
    found = await lookup.find_head(ctx, change.name, tree)
    assert found is not None, "`refuse_moved_on` has seen it"
    head, row = found
    leasing.refuse(ctx, session, head, None)
    key = rows.head_key(change.name, tree)
    write = RowWrite(key, head._replace(checkpoint=None).pack(key), row.version)
    moved = [LoggedChange(operation_log.HEAD, change.name, change.after, None)]
    ctx.memory.drop(change.name)
    try:
        logged = log.writes(ctx, origin, tree, "rollback", moved, session)
        await ctx.backend.commit(Commit(tree=tree, rows=[write, *logged]))
    except CommitConflict:
        raise ConflictError(
            f"session {session!r:.60} moved while operation {ids.to_text(entry.id)} was being undone. Look at "
            "`latest`, then decide again"
        ) from None


async def _life(
    ctx: StoreContext, entry: OperationEntry, life: LoggedChange, heads: list[LoggedChange], origin: Origin
) -> list[str]:
    """Undo an expiry, or do it again."""
    id_ = life.name
    if life.after:  # it undid an expiry
        if not await expire.expire(ctx, id_, origin=origin):
            raise ConflictError(f"checkpoint {ids.to_text(id_)} has expired again since: there is nothing to take back")
        return []
    done, left = await unexpire.undo_expiry(ctx, id_, heads, origin)
    if not done:
        raise ConflictError(
            f"checkpoint {ids.to_text(id_)} was brought back since: operation {ids.to_text(entry.id)} is not in force "
            "any more"
        )
    return left


async def _end(ctx: StoreContext, entry: OperationEntry, begun: Sequence[LoggedChange], origin: Origin) -> None:
    """Undo a fork: its first checkpoint expires, and its session has no head checkpoint.

    Both can come back until gc.
    """
    while True:
        found = [await _load_begun(ctx, entry, change) for change in begun]
        commit, _ = await expire.tombstone_commit(ctx, entry.tree, [pair for pair, _ in found], UNDONE)
        ended = [RowWrite(key, head._replace(checkpoint=None).pack(key), row.version) for _, (key, head, row) in found]
        changes = [LoggedChange(operation_log.SESSION, change.name, change.after, None) for change in begun]
        logged = log.writes(ctx, origin, entry.tree, "fork", changes, entry.session)
        keys = {write.key for write in ended}
        commit.rows = [*(write for write in commit.rows if write.key not in keys), *ended, *logged]
        for change in begun:
            ctx.memory.drop(change.name)
        try:
            await ctx.backend.commit(commit)
        except CommitConflict:
            for (_, stored), _ in found:
                await expire.refuse_if_held(ctx, stored)
            continue
        return


async def _load_begun(
    ctx: StoreContext, entry: OperationEntry, begun: LoggedChange
) -> tuple[tuple[Record, StoredRecord], tuple[RowKey, rows.Head, Row]]:
    """Return the first checkpoint of a session, and its head, which must still be that one."""
    session = rows.session_name(begun.name)
    head = await lookup.find_head(ctx, begun.name, entry.tree)
    [record] = await ctx.backend.records([begun.after])
    if head is None or record is None or head[0].checkpoint != begun.after:
        raise ConflictError(
            f"session {session!r:.60} has later saves than its fork: its head is "
            f"{_id(head[0].checkpoint if head else None)}. Nothing was undone. `holdfast op log` lists the operations, "
            "and `holdfast undo ID` undoes another one; `holdfast expire` removes the session's checkpoints"
        )
    leasing.refuse(ctx, session, head[0], None)
    stored = await lookup.load_live_record(ctx, begun.after)
    return (record, stored), (rows.head_key(begun.name, entry.tree), *head)


async def _begin(ctx: StoreContext, entry: OperationEntry, ended: Sequence[LoggedChange], origin: Origin) -> None:
    """Redo a fork that was undone."""
    while True:
        commits: list[Commit] = []
        heads: list[RowWrite] = []
        for change in ended:
            found = await lookup.find_head(ctx, change.name, entry.tree)
            commit = await unexpire.bringing_back(ctx, change.before)
            if found is None or found[0].checkpoint is not None or commit is None:
                session = rows.session_name(change.name)
                raise ConflictError(f"session {session!r:.60} was begun again since: it is left as it is")
            key = rows.head_key(change.name, entry.tree)
            heads.append(RowWrite(key, found[0]._replace(checkpoint=change.before).pack(key), found[1].version))
            commits.append(commit)
            ctx.memory.drop(change.name)
        changes = [LoggedChange(operation_log.SESSION, change.name, None, change.before) for change in ended]
        together = Commit(
            tree=entry.tree,
            more_records=[commit.record for commit in commits if commit.record is not None],
            rows=[*heads, *log.writes(ctx, origin, entry.tree, "fork", changes, entry.session)],
            require_rows=[required for commit in commits for required in commit.require_rows],
        )
        try:
            await ctx.backend.commit(together)
        except CommitConflict:
            continue
        return


def _id(checkpoint: bytes | None) -> str:
    return "nothing" if checkpoint is None else ids.to_text(checkpoint)
