"""adopt: the state of a fork becomes the next checkpoint of its source session. Nothing is copied."""

from __future__ import annotations

from holdfast.backends.port import CommitConflict
from holdfast.errors import CheckpointNotFoundError, ConflictError, UsageError
from holdfast.format.rows import head as rows
from holdfast.format.rows import operation_log
from holdfast.format.rows.operation_log import LoggedChange, Origin
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.operations import lease as leasing
from holdfast.operations import lookup
from holdfast.operations import operation_log as log
from holdfast.operations.context import StoreContext
from holdfast.operations.fork import MAX_ATTEMPTS, _copy_fields
from holdfast.operations.new_checkpoint import build_commit


async def adopt(
    ctx: StoreContext, fork_session: str, session_id: str | None, origin: Origin
) -> tuple[StoredRecord, StoredRecord]:
    """Adopt a fork; return the new checkpoint, a child of the fork's head, and that head.

    The previous head of the session stays as a branch.
    """
    tip = await lookup.load_tip(ctx, rows.session_key(fork_session))
    if tip.checkpoint is None:
        raise CheckpointNotFoundError(
            f"there is no session {fork_session!r:.200}. `sessions` lists those that are there"
        )
    fork = tip.checkpoint
    parent = session_id if session_id is not None else await parent_session(ctx, fork_session, fork)
    if parent == fork_session:
        raise UsageError(
            f"session {parent!r:.60} can't adopt itself: name the fork, and the session that continues with it"
        )
    session = rows.session_key(parent)
    adopted = ctx.codec.decode(fork.header["meta"]) if "meta" in fork.header else {}
    adopted = {**adopted, "adopted_from": ids.to_text(fork.id), "adopted_session": fork_session}
    fields = _copy_fields(fork) | {"session": parent, "name": "adopted", "meta": ctx.codec.encode(adopted, "metadata")}
    for _ in range(MAX_ATTEMPTS):
        tip = await lookup.load_tip(ctx, session)
        if tip.tree is not None and tip.tree != fork.tree:
            raise UsageError(
                f"session {parent!r:.60} is no relative of {fork_session!r:.60}: only a fork of it, or of one that it "
                "was forked from, can be adopted"
            )
        leasing.refuse(ctx, parent, tip.head, None)
        commit, stored, _ = build_commit(ctx, tip, fork, fields, fork.manifest())
        moved = [LoggedChange(operation_log.HEAD, session, tip.head.checkpoint, stored.id)]
        commit.rows = [*commit.rows, *log.writes(ctx, origin, stored.tree, "adopt", moved, parent)]
        ctx.memory.drop(session)
        try:
            await ctx.backend.commit(commit)
        except CommitConflict:
            fork = await lookup.load_live_record(ctx, fork.id)
        else:
            return stored, fork
    raise ConflictError(f"session {parent!r:.60} is being written by too many at once: try again")


async def parent_session(ctx: StoreContext, fork_session: str, head: StoredRecord) -> str:
    """Return the session that a fork came from."""
    point, _ = await fork_point(ctx, fork_session, head)
    if point is None:
        raise UsageError(
            f"session {fork_session!r:.60} is not a fork of a session that still exists: say session_id, which names "
            "the session to continue"
        )
    return point.session


async def fork_point(
    ctx: StoreContext, fork_session: str, head: StoredRecord
) -> tuple[StoredRecord | None, StoredRecord]:
    """Return the checkpoint at which a fork began, and the fork's first checkpoint after it.

    The former is the first one up from the fork's head that is not its own, None if it is gone.
    """
    first = head
    above = await lookup.find_nearest_live(ctx, head.parent, head.tree)
    while above is not None and above.session == fork_session:
        first, above = above, await lookup.find_nearest_live(ctx, above.parent, above.tree)
    return above, first
