"""inbox: the handoffs to an agent, and their states."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from holdfast.backends.port import Row, RowKey, UnreadableBytes, check_readable
from holdfast.errors import HoldfastError
from holdfast.format.rows import head as rows
from holdfast.format.rows import inbox as entries
from holdfast.format.rows.inbox import Entry, FollowUp, LastClaim
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.handoff import Handoff, HandoffStatus
from holdfast.model.moment import moment_of
from holdfast.operations import lease as leasing
from holdfast.operations import lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.gc_rows import remove_row

PAGE = 200
_log = logging.getLogger("holdfast")


async def inbox(ctx: StoreContext, agent_id: str, *, include_claimed: bool = False) -> list[Handoff]:
    """Return the handoffs to an agent that can be claimed, oldest first, without expired ones.

    With `include_claimed`, also those that were claimed or continued.
    """
    prefix = entries.prefix(agent_id, b"" if include_claimed else entries.WAITING)
    listed: list[Handoff] = []
    after: bytes | None = None
    while page := await ctx.backend.scan(entries.INBOX, prefix=prefix, after=after, limit=PAGE):
        listed += await _list_handoffs(ctx, page)
        after = page[-1][0].key
    found = [handoff for handoff in listed if include_claimed or handoff.can_be_claimed]
    return sorted(found, key=lambda handoff: (handoff.offered_at, handoff.handoff_id))


async def list_handoffs(ctx: StoreContext, tree: bytes) -> list[Handoff]:
    """Return all handoffs of a tree."""
    page = await ctx.backend.scan(entries.INBOX, tree=tree)
    return await _list_handoffs(ctx, page) if page else []


async def entry_of(ctx: StoreContext, handoff: StoredRecord) -> tuple[Entry, int]:
    """Return the entry of a handoff, and the version of its row while it waits (0: there is none)."""
    waiting, done = entries.key(handoff, entries.WAITING), entries.key(handoff, entries.DONE)
    [waits, ended] = await ctx.backend.rows([waiting, done])
    if waits is not None:
        return entries.unpack(waiting, waits), waits.version
    return (entries.unpack(done, ended) if ended is not None else None), 0


async def gc_inbox(ctx: StoreContext) -> None:
    """Remove the rows of handoffs that have expired for good. Part of `gc`."""
    page: list[tuple[RowKey, Row]]
    after: bytes | None = None
    while page := check_readable(await ctx.backend.scan(entries.INBOX, after=after, limit=PAGE)):
        found = await ctx.backend.records([entries.handoff_id(key) for key, _ in page])
        kept = await ctx.backend.rows([RowKey(rows.EXPIRED, entries.handoff_id(key), key.tree) for key, _ in page])
        for (key, row), data, undoable in zip(page, found, kept, strict=True):
            is_gone = data is None or record.unpack(ctx.codec, data.data, expected_id=data.id).is_tombstone
            if is_gone and undoable is None:
                await remove_row(ctx, key, row.version)
        after = page[-1][0].key


async def _list_handoffs(ctx: StoreContext, page: Iterable[tuple[RowKey, Row]]) -> list[Handoff]:
    """Return the handoffs of these rows that have not expired. An unreadable one hides no others."""
    found: list[tuple[StoredRecord, Entry]] = []
    page = list(page)
    for key, row in page:
        if isinstance(row.value, UnreadableBytes):
            _log.warning("handoff %s is left out of the list: %s", rows.format_key(key.key), row.value.error)
    page = [(key, row) for key, row in page if not isinstance(row.value, UnreadableBytes)]
    records = await ctx.backend.records([entries.handoff_id(key) for key, _ in page])
    for (key, row), data in zip(page, records, strict=True):
        try:
            stored = record.unpack(ctx.codec, data.data, expected_id=data.id) if data else None
            if stored is not None and not await lookup.is_expired(ctx, stored):
                found.append((stored, entries.unpack(key, row)))
        except HoldfastError as error:
            _leave_out(entries.handoff_id(key), error)
    # The claimant has it as long as the lease lives.
    keys = {
        stored.id: rows.head_key(rows.session_key(stored.session), stored.tree)
        for stored, entry in found
        if isinstance(entry, LastClaim)
    }
    heads = dict(zip(keys, await ctx.backend.rows(list(keys.values())), strict=True)) if keys else {}
    listed = []
    for stored, entry in found:
        try:
            head = heads.get(stored.id)
            standing = rows.unpack_head(keys[stored.id], head) if head is not None else None
            listed.append(_handoff(ctx, stored, entry, standing))
        except HoldfastError as error:
            _leave_out(stored.id, error)
    return listed


def _handoff(ctx: StoreContext, stored: StoredRecord, entry: Entry, head: rows.Head | None) -> Handoff:
    checkpoint = record.checkpoint(ctx.codec, stored)
    origin = stored.header.get("origin")
    delegated_by = origin[0] if origin is not None else None
    if isinstance(entry, FollowUp):
        return Handoff(
            checkpoint=checkpoint,
            status=_get_end_status(entry, is_delegation=origin is not None),
            by=rows.session_name(entry.by),
            since=moment_of(entry.at_us),
            next_id=ids.to_text(entry.next) if entry.next else None,
            delegated_by=delegated_by,
        )
    if isinstance(entry, LastClaim) and head is not None and head.fence == entry.token and head.lease is not None:
        is_alive = leasing.is_alive(ctx, head.lease)
        status = HandoffStatus.CLAIMED if is_alive else HandoffStatus.TIMED_OUT
        by, since = rows.session_name(entry.holder), moment_of(entry.at_us)
        return Handoff(checkpoint=checkpoint, status=status, by=by, since=since, delegated_by=delegated_by)
    return Handoff(checkpoint=checkpoint, status=HandoffStatus.OPEN, delegated_by=delegated_by)


def _get_end_status(entry: FollowUp, *, is_delegation: bool) -> HandoffStatus:
    if not entry.next:
        return HandoffStatus.CANCELLED
    if is_delegation:
        return HandoffStatus.ANSWERED
    return HandoffStatus.PASSED_ON if entry.passed_on else HandoffStatus.TAKEN_UP


def _leave_out(id_: bytes, error: HoldfastError) -> None:
    _log.warning("handoff %s is left out of the list: %s", ids.to_text(id_), error)
