"""The line of a checkpoint's ancestors, and a check whether a session has only advanced on its line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from holdfast.errors import CorruptError
from holdfast.format.rows import head
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.operations import lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.tombstones import TombstoneReader

PAGE = 500


async def live_line(ctx: StoreContext, newest: StoredRecord) -> AsyncIterator[StoredRecord]:
    """Yield a live checkpoint and its live ancestors, newest first. Reads them in pages."""
    known: Mapping[bytes, StoredRecord] = {}
    at: StoredRecord | None = newest
    while at is not None:
        yield at
        if at.parent is None:
            return
        if at.parent not in known:
            known = await _page_before(ctx, at)
        found = known.get(at.parent)
        if found is None or await lookup.is_expired(ctx, found):
            found = await lookup.find_nearest_live(ctx, at.parent, at.tree)
        at = found


async def _page_before(ctx: StoreContext, stored: StoredRecord) -> Mapping[bytes, StoredRecord]:
    """Return the checkpoints of a session before one of them, by their ids, without damaged ones."""
    page: dict[bytes, StoredRecord] = {}
    session = head.session_key(stored.session)
    for session_record in await ctx.backend.session_records(session, before=stored.sequence, limit=PAGE):
        try:
            page[session_record.id] = record.unpack(ctx.codec, session_record.data, expected_id=session_record.id)
        except CorruptError:  # it raises where it is read by its id, if it is on the line
            continue
    return page


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
    tombstone_reader = TombstoneReader(ctx)
    if since is None:
        since = 0
        if anchor is not None:
            stored = await lookup.find_record(ctx, anchor, tree, tombstone_reader)
            if stored is None or stored.session != session_id:
                return False
            since = stored.sequence
    known: dict[bytes, tuple[int, bytes | None]] = {}  # by id: sequence number and parent; read in pages
    for number in range(sequence, since, -1):
        if tip is None:
            return False
        if tip not in known:
            stored = await lookup.find_record(ctx, tip, tree, tombstone_reader)
            if stored is None or stored.session != session_id:
                return False
            known[tip] = (stored.sequence, stored.parent)
            if limit := min(PAGE, number - since - 1):
                session = head.session_key(session_id)
                for session_record in await ctx.backend.session_records(session, before=stored.sequence, limit=limit):
                    found = record.unpack(ctx.codec, session_record.data, expected_id=session_record.id)
                    known[session_record.id] = (found.sequence, found.parent)
        found_number, parent = known[tip]
        if found_number != number:
            return False
        tip = parent
    return tip == anchor
