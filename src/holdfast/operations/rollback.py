"""rollback: a session's head moves to another checkpoint of its tree. Nothing is removed."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.backends.port import Commit, CommitConflict, RowWrite
from holdfast.errors import CheckpointNotFoundError, ConflictError, UsageError
from holdfast.model import ids
from holdfast.model.lease import LeaseTerms
from holdfast.model.reports import RollbackReport
from holdfast.objects import oplog, record, rows
from holdfast.objects.oplog import Change, Origin
from holdfast.operations import aftermath, approvals, reading
from holdfast.operations import lease as leasing
from holdfast.operations import oplog as log
from holdfast.operations.services import Services


async def rollback(
    services: Services,
    session_id: str,
    to: bytes,
    *,
    expect_head: bytes | None = None,
    lease: LeaseTerms | None = None,
    strict: bool = False,
    acknowledge: Collection[str] = (),
    by: str = "",
    dry_run: bool = False,
    origin: Origin | None = None,
) -> RollbackReport:
    """Moves the head by compare-and-set against what it was when read: whoever saves meanwhile is not overlooked. With
    `dry_run` only says what it would leave behind."""
    session = rows.session_key(session_id)
    tree = await reading.find_tree(services, session)
    found = await reading.find_head(services, session, tree) if tree is not None else None
    if tree is None or found is None:
        raise CheckpointNotFoundError(f"there is no session {session_id!r:.60}. `sessions` lists those that are there")
    head, row = found
    leasing.refuse(services, session_id, head, lease)
    target = await reading.live_record(services, to)
    if target.tree != tree:
        raise UsageError(
            f"{ids.to_text(to)} does not belong to the tree of session {session_id!r:.60}. `tree` lists what does; "
            "`fork` begins a new session at any checkpoint"
        )
    left = await aftermath.of_rollback(services, tree, session_id, head.checkpoint, to)
    acknowledgements = aftermath.acknowledged(services, left, acknowledge, by, "rollback")
    voided, voids = await approvals.void_after(services, tree, session_id, to)
    key = rows.head_key(session, tree)
    write = RowWrite(key, head._replace(checkpoint=to).pack(key), row.version)
    report = RollbackReport(
        session_id=session_id,
        from_id=ids.to_text(head.checkpoint) if head.checkpoint else None,
        to_id=ids.to_text(to),
        approvals_voided=voided,
        effects=left.effects,
        unknown=left.unknown,
        consumers=left.consumers,
    )
    if strict:
        aftermath.refuse_unacknowledged(report, acknowledge, "the rollback")
    if expect_head is not None and expect_head != head.checkpoint:
        raise _moved(session_id)
    if dry_run:
        return report
    services.memory.drop(session)
    try:
        moved = [Change(oplog.HEAD, session, head.checkpoint, to)]
        logged = log.writes(services, origin if head.checkpoint != to else None, tree, "rollback", moved, session_id)
        changes = [write, *voids, *acknowledgements, *logged]
        await services.backend.commit(Commit(tree=tree, rows=changes, require=[(to, record.LIVE)]))
    except CommitConflict:
        raise _moved(session_id) from None
    return report


def _moved(session_id: str) -> ConflictError:
    return ConflictError(
        f"session {session_id!r:.60} moved while it was being rolled back: another writer is at work. "
        "Look at `latest`, then decide again"
    )
