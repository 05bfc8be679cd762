"""runs and overview: sessions at work, and pending work. Reads rows and heads' records, no states."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime

from holdfast.errors import HoldfastError
from holdfast.format.rows import head as rows
from holdfast.format.state import record
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.store_status import ALIVE, CANCELLED, STOPPED, WAITING, Overview, RunStatus
from holdfast.operations import approval, lease, lookup
from holdfast.operations.context import StoreContext

PAGE = 200
_log = logging.getLogger("holdfast")


async def overview(ctx: StoreContext, *, sizes: bool = True) -> Overview:
    """Return the overview, optionally without `sizes`, whose cost grows with the store."""
    stored_bytes = (await ctx.backend.usage()).total_bytes if sizes else None
    capabilities = ctx.backend.capabilities
    found, sessions, saves = await _looked_at(ctx, only_alive=True)
    return Overview(
        backend=capabilities.name,
        location=capabilities.location,
        durability=capabilities.durability,
        sessions=sessions,
        saves=saves,
        stored_bytes=stored_bytes,
        approvals=len(await approval.listed(ctx)),
        alive=tuple(found),
    )


async def runs(ctx: StoreContext, *, alive: bool = False) -> list[RunStatus]:
    """Return the sessions with a present or past lease: those at work first, then those saved to last."""
    found, _, _ = await _looked_at(ctx, only_alive=alive)
    order = {ALIVE: 0, WAITING: 1, STOPPED: 2, CANCELLED: 3}
    oldest = datetime.min.replace(tzinfo=UTC)
    found.sort(key=lambda one: one.head.created_at if one.head else oldest, reverse=True)
    return sorted(found, key=lambda one: order[one.status])


async def _looked_at(ctx: StoreContext, *, only_alive: bool) -> tuple[list[RunStatus], int, int]:
    """Return the runs, the number of sessions with a checkpoint, and of all their saves so far."""
    waiting = Counter(one.session_id for one in await approval.listed(ctx))
    found: list[RunStatus] = []
    sessions = saves = 0
    after: bytes | None = None
    while page := await ctx.backend.scan(rows.HEAD, after=after, limit=PAGE):
        for key, row in page:
            name = rows.session_name(key.key)
            try:
                head = rows.unpack_head(key, row)
                sessions += head.checkpoint is not None
                saves += head.sequence
                held = head.lease if head.lease is not None and lease.is_alive(ctx, head.lease) else None
                if held is not None and held.cancellation is not None and only_alive:
                    continue
                if held is None and (only_alive or not head.fence):  # none that was ever leased has no fence
                    continue
                tip = await lookup.nearest_live(ctx, head.checkpoint, key.tree)
                found.append(_status(name, head, held, _shown(ctx, tip), waiting[name]))
            except HoldfastError as error:  # an unreadable one must not hide the others
                _log.warning("session %r is left out of the list: %s", name, error)
        after = page[-1][0].key
    return found, sessions, saves


def _shown(ctx: StoreContext, tip: record.StoredRecord | None) -> Checkpoint | None:
    return None if tip is None else record.checkpoint(ctx.codec, tip)


def _status(
    name: str, head: rows.Head, held: rows.LeaseRow | None, tip: Checkpoint | None, approvals_waiting: int
) -> RunStatus:
    if held is not None and (made := held.cancellation) is not None:
        return RunStatus(
            session_id=name,
            status=CANCELLED,
            head=tip,
            saves=head.sequence,
            approvals=approvals_waiting,
            holder=made.by,
        )
    return RunStatus(
        session_id=name,
        status=ALIVE if held else WAITING if approvals_waiting else STOPPED,
        head=tip,
        saves=head.sequence,
        approvals=approvals_waiting,
        holder=rows.session_name(held.holder) if held else None,
        expires_at=datetime.fromtimestamp(held.expires_at_us / 1e6, UTC) if held else None,
    )
