"""cancel: end a session and the work that it delegated, whatever their workers do.

A cancellation takes the lease of a session with a higher fence, and keeps it. So each commit of its
worker is refused from then on. The session comes before its delegations: after its own end it
can't delegate anything more.
"""

from __future__ import annotations

from holdfast.backends.port import RowWrite, check_readable
from holdfast.errors import CheckpointNotFoundError
from holdfast.format.rows import head as rows
from holdfast.format.rows import inbox as entries
from holdfast.format.rows.delegation import DelegationRow
from holdfast.format.rows.head import Cancellation
from holdfast.format.rows.inbox import FollowUp
from holdfast.format.state import record
from holdfast.model.cancellation import (
    ANSWERED,
    CANCELLED,
    IDLE,
    RUNNING,
    UNCLAIMED,
    CancelledSession,
    CancelReport,
)
from holdfast.model.effect import IN_DOUBT, EffectState
from holdfast.operations import approval, delegation, ledger, lookup
from holdfast.operations import lease as leasing
from holdfast.operations.context import StoreContext
from holdfast.operations.session_cache import SessionTip


async def cancel(ctx: StoreContext, session_id: str, *, by: str, reason: str, dry_run: bool = False) -> CancelReport:
    """Cancel a session and its delegations, depth first. The same again is a no-op."""
    if await lookup.find_tree(ctx, rows.session_key(session_id)) is None:
        raise CheckpointNotFoundError(f"there is no session {session_id!r:.200}. `sessions` lists those that are there")
    made: list[CancelledSession] = []
    left: list[tuple[str, DelegationRow | None, int]] = [(session_id, None, 0)]
    seen: set[str] = set()
    while left:
        name, offered, depth = left.pop()
        if name in seen:
            continue  # rows of a stranger may form a circle
        seen.add(name)
        cancellation = Cancellation(by, reason, ctx.now_us())
        status, holder, tip = await _end(ctx, name, offered, cancellation, dry_run=dry_run)
        made.append(await _report(ctx, tip, name, offered, depth, status, holder, dry_run=dry_run))
        if tip.tree is not None:
            children = await delegation.list_children(ctx, tip.tree, name)
            left += [(child.child, child, depth + 1) for child in reversed(children)]
    return CancelReport(session_id=session_id, by=by, reason=reason, dry_run=dry_run, sessions=tuple(made))


async def _end(
    ctx: StoreContext, name: str, offered: DelegationRow | None, made: Cancellation, *, dry_run: bool
) -> tuple[str, str | None, SessionTip]:
    """End one session; return how it was before, its holder, and its tip then."""
    session = rows.session_key(name)
    for _ in range(leasing.MAX_ATTEMPTS):
        tip = await lookup.load_tip(ctx, session)
        entry = await delegation.entry_of(ctx, offered) if offered is not None else None
        held = tip.head.lease
        if held is not None and held.cancellation is not None:
            return CANCELLED, None, tip
        if isinstance(entry, FollowUp):
            return ANSWERED, None, tip
        status, holder = IDLE, None
        if held is not None and leasing.is_alive(ctx, held):
            status, holder = RUNNING, rows.session_name(held.holder)
        elif offered is not None and tip.head.checkpoint in (None, offered.offer):
            status = UNCLAIMED
        if dry_run:
            return status, holder, tip
        fence = max(tip.head.fence + 1, ctx.now_us())
        head = tip.head._replace(fence=fence, lease=rows.LeaseRow.from_cancellation(made))
        extra_rows = await _end_offers(ctx, tip, name, offered, made)
        new_tree = offered.offer if offered is not None else None
        ctx.memory.drop(session)
        if await leasing.move_head(ctx, session, tip, head, extra_rows=extra_rows, new_tree=new_tree):
            ctx.memory.drop(session)
            return status, holder, tip
    raise leasing.make_overtaken_error(name)


async def _end_offers(
    ctx: StoreContext, tip: SessionTip, name: str, offered: DelegationRow | None, made: Cancellation
) -> list[RowWrite]:
    """Return the changes that take the open handoffs of a session out of all inboxes."""
    follow_up = FollowUp(b"", made.at_us, rows.session_key(made.by), False)
    if tip.tree is None:  # delegated, and not made yet: it never will be
        return [] if offered is None else entries.end(offered.agent, offered.offer, offered.offer, follow_up)
    offers = check_readable(await ctx.backend.scan(entries.INBOX, tree=tip.tree))
    waiting = [key for key, _ in offers if entries.is_waiting(key)]
    found = await ctx.backend.records([entries.handoff_id(key) for key in waiting]) if waiting else []
    writes: list[RowWrite] = []
    for data in found:
        stored = record.unpack(ctx.codec, data.data, expected_id=data.id) if data is not None else None
        if stored is not None and not stored.is_tombstone and stored.session == name:
            writes += entries.end(stored.header["to"], stored.id, stored.tree, follow_up)
            writes += await delegation.wake_joiner(ctx, stored)
    return writes


async def _report(
    ctx: StoreContext,
    tip: SessionTip,
    name: str,
    offered: DelegationRow | None,
    depth: int,
    status: str,
    holder: str | None,
    *,
    dry_run: bool,
) -> CancelledSession:
    found = (
        []
        if tip.tree is None
        else [ledger_entry for ledger_entry in await ledger.load_entries(ctx, tip.tree) if ledger_entry.session == name]
    )
    agent = offered.agent if offered is not None else None
    if agent is None and tip.checkpoint is not None:
        agent = tip.checkpoint.header["agent"]
    voided = 0
    if tip.tree is not None and status != ANSWERED and not dry_run:
        voided = await approval.withdraw_all(ctx, tip.tree, name)
    return CancelledSession(
        session_id=name,
        parent_id=offered.session if offered is not None else None,
        depth=depth,
        agent_id=agent,
        status=status,
        holder=holder,
        effects=tuple(
            ledger_entry.effect(ctx.codec) for ledger_entry in found if ledger_entry.state is EffectState.DONE
        ),
        unknown=tuple(ledger_entry.effect(ctx.codec) for ledger_entry in found if ledger_entry.state in IN_DOUBT),
        approvals_voided=voided,
    )
