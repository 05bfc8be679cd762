"""lease: one writer of a session at a time. Commits of a writer that lost its lease fail.

A lease is part of the head's row. Each save compares the row with the value that it was built on.
So no save made under one lease can be committed after another was granted, however long its process
was paused in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from holdfast.backends.port import ABSENT, Commit, CommitConflict, RowKey, RowWrite
from holdfast.errors import ConflictError, LeaseHeldError, LeaseLostError, RunCancelledError
from holdfast.format.rows import head as rows
from holdfast.format.state import record
from holdfast.model.lease import LeaseTerms
from holdfast.operations import lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.session_cache import SessionTip

RETRY_SECONDS = 0.25
MAX_ATTEMPTS = 200


# -- checks by saves -------------------------------------------------------------------------------------------------


def allows(ctx: StoreContext, head: rows.Head, lease: LeaseTerms | None) -> bool:
    """Return whether a session with this head may be written to: with that lease, or (None) without one."""
    held = head.lease
    if lease is None:
        return held is None or not is_alive(ctx, held)
    return held is not None and head.fence == lease.token and ctx.now_us() < held.expires_at_us


def refuse(ctx: StoreContext, session_id: str, head: rows.Head, lease: LeaseTerms | None) -> None:
    """Raise the fitting error if `allows` is False."""
    if allows(ctx, head, lease):
        return
    refuse_cancelled(session_id, head)
    held = head.lease
    if lease is None:
        assert held is not None
        raise _make_held_error(
            session_id, held, "only its holder may write to it. Wait until it is released or runs out, or `fork`"
        )
    if held is not None and head.fence == lease.token:
        raise LeaseLostError(
            f"the lease of session {session_id!r:.60} ran out at {_moment(held)} without having been renewed: others "
            "may have seen the session as free. Take a new lease, look at `latest`, and go on from there"
        )
    now = f"it is held by {_name(held)!r:.60} now" if held is not None else "it was released or taken over"
    raise LeaseLostError(
        f"the lease of session {session_id!r:.60} that {lease.holder!r:.60} had is over: {now}. Nothing was written. "
        "Stop, or take a new lease and look at `latest` before going on"
    )


def refuse_cancelled(session_id: str, head: rows.Head) -> None:
    """Raise if the session was cancelled: no wait leads to its lease."""
    made = head.lease.cancellation if head.lease is not None else None
    if made is not None:
        why = f": {made.reason}" if made.reason else ""
        raise RunCancelledError(
            f"session {session_id!r:.60} was cancelled by {made.by!r:.60} on {_moment_of(made.at_us)}{why:.500}. "
            "Nothing was written. Stop; to go on from its last checkpoint after all, `fork` it",
            session_id,
            made.by,
            made.reason,
        )


# -- acquire, renew, release -----------------------------------------------------------------------------------------


async def acquire(
    ctx: StoreContext, session_id: str, *, holder: str, seconds: float, wait: float = 0.0
) -> tuple[int, int]:
    """Acquire a lease; return its token and when it runs out.

    If another holder has it, wait for at most `wait` seconds.
    """
    session = rows.session_key(session_id)
    deadline: int | None = None
    for _ in range(MAX_ATTEMPTS):
        tip = await lookup.revalidated_tip(ctx, session)
        if deadline is None:  # only now: before the first request, a store's own clock is not known
            deadline = ctx.now_us() + round(wait * 1e6)
        refuse_cancelled(session_id, tip.head)
        while not allows(ctx, tip.head, None) and await wait_to_retry(ctx, deadline):
            tip = await lookup.revalidated_tip(ctx, session)
            refuse_cancelled(session_id, tip.head)
        head = grant(ctx, session_id, tip.head, holder=holder, seconds=seconds)
        if await move_head(ctx, session, tip, head):
            assert head.lease is not None
            return head.fence, head.lease.expires_at_us
    raise make_overtaken_error(session_id)


async def wait_to_retry(ctx: StoreContext, deadline_us: int) -> bool:
    """Wait a moment; return False, at once, after the deadline."""
    left = (deadline_us - ctx.now_us()) / 1e6
    if left <= 0:
        return False
    await ctx.backend.sleep(min(RETRY_SECONDS, left))
    return True


def grant(ctx: StoreContext, session_id: str, head: rows.Head, *, holder: str, seconds: float) -> rows.Head:
    """Return the head with a new lease. Raise `LeaseHeldError` if another holder has one."""
    refuse_cancelled(session_id, head)
    if not allows(ctx, head, None):
        assert head.lease is not None
        raise _make_held_error(session_id, head.lease, "wait until it is released or runs out")
    # Tokens rise within a session, and don't recur when a collected session's name is reused.
    token = max(head.fence + 1, ctx.now_us())
    return head._replace(fence=token, lease=make_lease(ctx, holder, seconds))


def make_lease(ctx: StoreContext, holder: str, seconds: float) -> rows.LeaseRow:
    """Return a lease of this process for so many seconds from now on."""
    expires_at_us = ctx.now_us() + round(seconds * 1e6)
    return rows.LeaseRow(expires_at_us, rows.session_key(holder), ctx.this_process())


async def renew(ctx: StoreContext, lease: LeaseTerms) -> int:
    """Extend the lease for its seconds from now on; return until when.

    Raises `LeaseLostError` if it is over.
    """
    session = rows.session_key(lease.session_id)
    for _ in range(MAX_ATTEMPTS):
        tip = await load_held_tip(ctx, lease)
        assert tip.head.lease is not None
        expires_at_us = ctx.now_us() + round(lease.seconds * 1e6)
        head = tip.head._replace(lease=tip.head.lease._replace(expires_at_us=expires_at_us))
        if await move_head(ctx, session, tip, head):
            return expires_at_us
    raise make_overtaken_error(lease.session_id)


async def release(ctx: StoreContext, lease: LeaseTerms) -> bool:
    """End the lease; return False if it was over already."""
    session = rows.session_key(lease.session_id)
    for _ in range(MAX_ATTEMPTS):
        try:
            tip = await load_held_tip(ctx, lease)
        except LeaseLostError:
            return False
        if await move_head(ctx, session, tip, tip.head._replace(lease=None), extra_rows=lease.at_release):
            return True
    raise make_overtaken_error(lease.session_id)


async def load_held_tip(ctx: StoreContext, lease: LeaseTerms) -> SessionTip:
    """Return the tip of the lease's session. Raise `LeaseLostError` if the lease is over.

    A cached tip that says so is read again.
    """
    session = rows.session_key(lease.session_id)
    tip = lookup.cached_tip(ctx, session)
    if tip is None or not allows(ctx, tip.head, lease):
        tip = await lookup.revalidated_tip(ctx, session)
        refuse(ctx, lease.session_id, tip.head, lease)
    return tip


async def move_head(
    ctx: StoreContext,
    session: bytes,
    tip: SessionTip,
    head: rows.Head,
    *,
    extra_rows: Sequence[RowWrite] = (),
    new_tree: bytes | None = None,
) -> bool:
    """Replace the head of a tip, with further rows of its tree; return False on a conflict.

    A session that has no tree yet gets `new_tree`, or any new one. If only the lease differs, the
    cached tip stays valid. If the head moves to another checkpoint, which must be live, the cached
    tip is dropped.
    """
    tree = tip.tree or new_tree or ctx.new_id(None)  # a session without checkpoints gets its tree now
    key = rows.head_key(session, tree)
    value = head.pack(key)
    commit = Commit(tree=tree, rows=[RowWrite(key, value, tip.version, tip.head_value), *extra_rows])
    if tip.tree is None:
        session_row = RowKey(rows.SESSION, session)
        commit.rows = [*commit.rows, RowWrite(session_row, rows.protect(session_row, tree), ABSENT)]
    next_tip = replace(tip, tree=tree, version=tip.version + 1, head=head, head_value=value)
    if head.checkpoint == tip.head.checkpoint:
        ctx.memory.put(session, next_tip)
    else:
        assert head.checkpoint is not None
        commit.require = [(head.checkpoint, record.LIVE)]
        ctx.memory.drop(session)
    try:
        await ctx.backend.commit(commit)
    except CommitConflict:
        ctx.memory.drop_failed(session, next_tip)
        return False
    except BaseException:
        ctx.memory.drop_failed(session, next_tip)
        raise
    return True


# -- helpers ---------------------------------------------------------------------------------------------------------


def is_alive(ctx: StoreContext, held: rows.LeaseRow) -> bool:
    """Return whether a lease counts: it has not run out, and its holder is not known to have died."""
    return ctx.now_us() < held.expires_at_us and not ctx.has_ended(held.process)


def _make_held_error(session_id: str, held: rows.LeaseRow, remedy: str) -> LeaseHeldError:
    holder = _name(held)
    message = f"session {session_id!r:.60} is leased to {holder!r:.60} until {_moment(held)}: {remedy}"
    return LeaseHeldError(message, holder, datetime.fromtimestamp(held.expires_at_us / 1e6, UTC))


def make_overtaken_error(session_id: str) -> ConflictError:
    return ConflictError(f"session {session_id!r:.60} is being written by too many at once: try again")


def _name(held: rows.LeaseRow) -> str:
    return rows.session_name(held.holder)


def _moment(held: rows.LeaseRow) -> str:
    return _moment_of(held.expires_at_us)


def _moment_of(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
