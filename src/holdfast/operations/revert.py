"""revert: takes an entry of the log of operations back. All of it, in one commit, or nothing.

Each thing must still be as the operation left it; whatever was built upon it since is never swept away, but named in the error.
What an operation did to files is taken back by a workspace (`holdfast.undoing`).
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.port import Commit, CommitConflict, Record, Row, RowKey, RowWrite
from holdfast.errors import CheckpointExpiredError, ConflictError
from holdfast.model import ids
from holdfast.model.reports import RollbackReport
from holdfast.objects import oplog, rows
from holdfast.objects.oplog import Change, Entry, Origin
from holdfast.objects.record import Stored
from holdfast.operations import expire, pins, reading, rollback, tags, unexpire
from holdfast.operations import lease as leasing
from holdfast.operations import oplog as log
from holdfast.operations.services import Services

UNDONE = "its fork was undone"


async def revert(services: Services, entry: Entry, origin: Origin) -> tuple[list[str], RollbackReport | None]:
    """What was left as it is, and what the move of a head leaves behind."""
    by_kind: dict[str, list[Change]] = {}
    for change in entry.changes:
        by_kind.setdefault(change.kind, []).append(change)
    heads = by_kind.get(oplog.HEAD, [])
    if oplog.LIFE in by_kind:
        [life] = by_kind[oplog.LIFE]
        return await _life(services, entry, life, heads, origin), None
    if oplog.SESSION in by_kind:
        sessions = by_kind[oplog.SESSION]
        await (_end if sessions[0].before is None else _begin)(services, entry, sessions, origin)
        return [], None
    if heads:
        [head] = heads
        return [], await _head(services, entry, head, origin)
    for change in by_kind.get(oplog.TAG, []):
        await tags.put_back(services, change, origin)
    for change in by_kind.get(oplog.PIN, []):
        await pins.put_back(services, change, origin)
    if oplog.MANY in by_kind:
        raise CheckpointExpiredError(
            f"operation {ids.to_text(entry.id)} can't be undone: retention collects what it lets go at once"
        )
    return [], None


async def refuse_moved_on(services: Services, entry: Entry, change: Change) -> None:
    """Raises if a session does not stand any more where an operation has left it."""
    head = await reading.find_head(services, change.name, entry.tree or await _tree(services, change.name))
    stands_at = None if head is None else head[0].checkpoint
    if stands_at == change.after:
        return
    session = rows.session_name(change.name)
    back = "" if change.before is None else (
        f" `holdfast rollback {session!r:.60} {ids.to_text(change.before)[-8:]}` moves it there all the same"
    )  # fmt: skip
    raise ConflictError(
        f"session {session!r:.60} has gone on since: it stands at {_id(stands_at)}, and operation {ids.to_text(entry.id)} had "
        f"left it at {_id(change.after)}. Nothing was changed.{back}"
    )


async def _tree(services: Services, session: bytes) -> bytes:
    return await reading.find_tree(services, session) or b""


async def _head(services: Services, entry: Entry, change: Change, origin: Origin) -> RollbackReport | None:
    await refuse_moved_on(services, entry, change)
    session = rows.session_name(change.name)
    if change.before is None:
        await _to_nothing(services, entry, change, origin)
        return None
    return await rollback.rollback(services, session, change.before, expect_head=change.after, origin=origin)


async def _to_nothing(services: Services, entry: Entry, change: Change, origin: Origin) -> None:
    """The session stands where all of its checkpoints had expired: at none."""
    session = rows.session_name(change.name)
    tree = entry.tree or await _tree(services, change.name)
    found = await reading.find_head(services, change.name, tree)
    assert found is not None, "`refuse_moved_on` has seen it"
    head, row = found
    leasing.refuse(services, session, head, None)
    key = rows.head_key(change.name, tree)
    write = RowWrite(key, head._replace(checkpoint=None).pack(key), row.version)
    moved = [Change(oplog.HEAD, change.name, change.after, None)]
    services.memory.drop(change.name)
    try:
        logged = log.writes(services, origin, tree, "rollback", moved, session)
        await services.backend.commit(Commit(tree=tree, rows=[write, *logged]))
    except CommitConflict:
        raise ConflictError(
            f"session {session!r:.60} moved while operation {ids.to_text(entry.id)} was being undone. Look at `latest`, then "
            "decide again"
        ) from None


async def _life(services: Services, entry: Entry, life: Change, heads: list[Change], origin: Origin) -> list[str]:
    """An expiry is undone, or done again."""
    id_ = life.name
    if life.after:  # it was brought back
        if not await expire.expire(services, id_, origin=origin):
            raise ConflictError(f"checkpoint {ids.to_text(id_)} has expired again since: there is nothing to take back")
        return []
    done, left = await unexpire.with_heads(services, id_, heads, origin)
    if not done:
        raise ConflictError(
            f"checkpoint {ids.to_text(id_)} was brought back since: operation {ids.to_text(entry.id)} is not in force any more"
        )
    return left


async def _end(services: Services, entry: Entry, begun: Sequence[Change], origin: Origin) -> None:
    """A fork is undone: its first checkpoint expires, and its session stands at nothing. Both can come back until gc."""
    while True:
        found = [await _begun(services, entry, one) for one in begun]
        commit, _ = await expire.burial(services, entry.tree, [pair for pair, _ in found], UNDONE)
        ended = [RowWrite(key, head._replace(checkpoint=None).pack(key), row.version) for _, (key, head, row) in found]
        changes = [Change(oplog.SESSION, one.name, one.after, None) for one in begun]
        logged = log.writes(services, origin, entry.tree, "fork", changes, entry.session)
        keys = {write.key for write in ended}
        commit.rows = [*(write for write in commit.rows if write.key not in keys), *ended, *logged]
        for one in begun:
            services.memory.drop(one.name)
        try:
            await services.backend.commit(commit)
        except CommitConflict:
            for (_, stored), _ in found:
                await expire.refuse_if_held(services, stored)
            continue
        return


async def _begun(
    services: Services, entry: Entry, begun: Change
) -> tuple[tuple[Record, Stored], tuple[RowKey, rows.Head, Row]]:
    """The first checkpoint of a session, and its head, which must still be that."""
    session = rows.session_name(begun.name)
    head = await reading.find_head(services, begun.name, entry.tree)
    [there] = await services.backend.records([begun.after])
    if head is None or there is None or head[0].checkpoint != begun.after:
        raise ConflictError(
            f"session {session!r:.60} has gone on since it was begun: it stands at {_id(head[0].checkpoint if head else None)}. "
            "It is left as it is; `holdfast expire` ends its checkpoints"
        )
    leasing.refuse(services, session, head[0], None)
    stored = await reading.live_record(services, begun.after)
    return (there, stored), (rows.head_key(begun.name, entry.tree), *head)


async def _begin(services: Services, entry: Entry, ended: Sequence[Change], origin: Origin) -> None:
    """A fork that was undone is there again."""
    while True:
        commits: list[Commit] = []
        heads: list[RowWrite] = []
        for one in ended:
            found = await reading.find_head(services, one.name, entry.tree)
            commit = await unexpire.bringing_back(services, one.before)
            if found is None or found[0].checkpoint is not None or commit is None:
                session = rows.session_name(one.name)
                raise ConflictError(f"session {session!r:.60} was begun again since: it is left as it is")
            key = rows.head_key(one.name, entry.tree)
            heads.append(RowWrite(key, found[0]._replace(checkpoint=one.before).pack(key), found[1].version))
            commits.append(commit)
            services.memory.drop(one.name)
        changes = [Change(oplog.SESSION, one.name, None, one.before) for one in ended]
        together = Commit(
            tree=entry.tree,
            more_records=[commit.record for commit in commits if commit.record is not None],
            rows=[*heads, *log.writes(services, origin, entry.tree, "fork", changes, entry.session)],
            require_rows=[required for commit in commits for required in commit.require_rows],
        )
        try:
            await services.backend.commit(together)
        except CommitConflict:
            continue
        return


def _id(checkpoint: bytes | None) -> str:
    return "nothing" if checkpoint is None else ids.to_text(checkpoint)
