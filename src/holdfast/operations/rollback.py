"""Rollback: a session's head moves to another checkpoint of its tree. Nothing is removed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from holdfast import telemetry
from holdfast.backends.port import Commit, CommitConflict, RowWrite
from holdfast.errors import CheckpointNotFoundError, ConflictError, UsageError
from holdfast.format.rows import head as rows
from holdfast.format.rows import operation_log
from holdfast.format.rows.operation_log import LoggedChange, Origin
from holdfast.format.state import record
from holdfast.model import ids
from holdfast.model.effect import EffectRecord
from holdfast.model.lease import LeaseTerms
from holdfast.model.reports import RollbackReport
from holdfast.operations import approval, left_behind, lookup
from holdfast.operations import lease as leasing
from holdfast.operations import operation_log as log
from holdfast.operations.context import StoreContext


class FileMove(Protocol):
    """Files that are rolled back together with the state."""

    async def refuse(self) -> None:
        """Raise the error for which the rollback would be refused."""

    async def rollback(self, terms: Mapping[str, Any], origin: Origin, *, dry_run: bool) -> RollbackReport:
        """Move the head and the files, both or neither. `terms` are the keywords of `rollback`."""


@dataclass(frozen=True, slots=True)
class Compensation:
    """Functions that undo effects, by their tool."""

    tools: Collection[str]
    run: Callable[[RollbackReport], Coroutine[Any, Any, tuple[EffectRecord, ...]]]
    """Undoes the effects of a report, the latest first, and returns them."""


async def rollback_with(
    ctx: StoreContext,
    session_id: str,
    to: bytes,
    *,
    expect_head: bytes | None,
    lease: LeaseTerms | None,
    strict: bool,
    acknowledge: frozenset[str],
    by: str,
    dry_run: bool,
    origin: Origin,
    files: FileMove | None,
    compensation: Compensation | None,
) -> RollbackReport:
    """Undo effects, then move the head, and with it the files."""
    terms: dict[str, Any] = {"expect_head": expect_head, "lease": lease, "by": by}
    undone: tuple[EffectRecord, ...] = ()
    if compensation is not None:
        # Effects that are undone need not be acknowledged.
        planned = await rollback(ctx, session_id, to, **terms, acknowledge=acknowledge, dry_run=True)
        if strict:
            rest = tuple(effect for effect in planned.effects if effect.tool not in compensation.tools)
            left_behind.refuse_unacknowledged(replace(planned, effects=rest), acknowledge, "the rollback")
        if files is not None:
            await files.refuse()  # before any effect is undone
        undone = await compensation.run(planned)
        acknowledge -= {effect.effect_id for effect in undone}
    terms |= {"strict": strict, "acknowledge": acknowledge}
    if files is not None:
        report = await files.rollback(terms, origin, dry_run=dry_run)
    else:
        report = await rollback(ctx, session_id, to, **terms, dry_run=dry_run, origin=origin)
    return replace(report, compensated=undone) if undone else report


@telemetry.trace_operation(telemetry.ROLLBACK)
async def rollback(
    ctx: StoreContext,
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
    """Move the head by compare-and-set against its value when it was read, so that no save is missed.

    With `dry_run`, only report the remains.
    """
    session = rows.session_key(session_id)
    tree = await lookup.find_tree(ctx, session)
    found = await lookup.find_head(ctx, session, tree) if tree is not None else None
    if tree is None or found is None:
        raise CheckpointNotFoundError(f"there is no session {session_id!r:.200}. `sessions` lists those that are there")
    head, row = found
    leasing.refuse(ctx, session_id, head, lease)
    target = await lookup.load_live_record(ctx, to)
    if target.tree != tree:
        raise UsageError(
            f"{ids.to_text(to)} does not belong to the tree of session {session_id!r:.60}. `tree` lists what does; "
            "`fork` begins a new session at any checkpoint"
        )
    left = await left_behind.find_after_rollback(ctx, tree, session_id, head.checkpoint, to)
    acknowledgements = left_behind.write_acknowledged(ctx, left, acknowledge, by, "rollback")
    voided, voids = await approval.void_after(ctx, tree, session_id, to)
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
        published=left.published,
        consumed=left.consumed,
    )
    if strict:
        left_behind.refuse_unacknowledged(report, acknowledge, "the rollback")
    if expect_head is not None and expect_head != head.checkpoint:
        raise _make_moved_error(session_id)
    if dry_run:
        return report
    ctx.memory.drop(session)
    try:
        moved = [LoggedChange(operation_log.HEAD, session, head.checkpoint, to)]
        logged = log.writes(ctx, origin if head.checkpoint != to else None, tree, "rollback", moved, session_id)
        marks = left_behind.write_rollback_marks(ctx, left, acknowledge, by)
        changes = [write, *voids, *acknowledgements, *marks, *logged]
        await ctx.backend.commit(Commit(tree=tree, rows=changes, require=[(to, record.LIVE)]))
    except CommitConflict:
        raise _make_moved_error(session_id) from None
    return report


def _make_moved_error(session_id: str) -> ConflictError:
    return ConflictError(
        f"session {session_id!r:.60} moved while it was being rolled back: another writer is at work. "
        "Look at `latest`, then decide again"
    )
