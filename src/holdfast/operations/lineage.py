"""A check whether a session has only advanced since some moment, without rollback, fork or move."""

from __future__ import annotations

from holdfast.format.rows import head
from holdfast.format.state import record
from holdfast.operations import lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.tombstones import TombstoneReader

PAGE = 500


async def has_only_gone_on(
    ctx: StoreContext,
    tree: bytes,
    session_id: str,
    *,
    anchor: bytes | None,
    since: int | None,
    tip: bytes | None,
    sequence: int,
) -> bool:
    """Return whether saves alone led a session from `anchor` to `tip`.

    `since` and `sequence` are the last sequence numbers that the session had given out there and
    here. Numbers are never reused. So the session was not moved in between if every checkpoint with
    a number above `since` is an ancestor of `tip`, and the first of them is a child of `anchor`.
    Without `since`, the anchor is taken for the newest one of its time.
    """
    graveyard = TombstoneReader(ctx)
    if since is None:
        since = 0
        if anchor is not None:
            stored = await lookup.find_record(ctx, anchor, tree, graveyard)
            if stored is None or stored.session != session_id:
                return False
            since = stored.sequence
    known: dict[bytes, tuple[int, bytes | None]] = {}  # by id: sequence number and parent; read in pages
    for number in range(sequence, since, -1):
        if tip is None:
            return False
        if tip not in known:
            stored = await lookup.find_record(ctx, tip, tree, graveyard)
            if stored is None or stored.session != session_id:
                return False
            known[tip] = (stored.sequence, stored.parent)
            if limit := min(PAGE, number - since - 1):
                session = head.session_key(session_id)
                for one in await ctx.backend.session_records(session, before=stored.sequence, limit=limit):
                    found = record.unpack(ctx.codec, one.data, expected_id=one.id)
                    known[one.id] = (found.sequence, found.parent)
        found_number, parent = known[tip]
        if found_number != number:
            return False
        tip = parent
    return tip == anchor
