"""verify and stats: whether everything is there and intact, and how much it is."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast import telemetry
from holdfast.backends.port import STORE, Record, Row, RowKey
from holdfast.errors import CorruptError, HoldfastError
from holdfast.format.rows import (
    approval,
    contract,
    delegation,
    hold,
    imported_snapshot,
    inbox,
    ledger,
    operation_log,
    packed_tombstones,
    restore_journal,
    run,
    topic,
)
from holdfast.format.rows import head as rows
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.listing import DamagedCheckpoint
from holdfast.model.reports import Problem, Stats, VerifyReport
from holdfast.operations import lookup
from holdfast.operations import timeline as listing
from holdfast.operations.content_check import ContentCheck
from holdfast.operations.context import StoreContext
from holdfast.operations.record_pages import PAGE, RecordsAhead, record_pages, rows_by_key, unpacked_pages
from holdfast.operations.tombstones import TombstoneReader

_OTHER_ROWS = (  # the spaces of rows that no other check reads
    *(approval.APPROVAL, ledger.LEDGER, operation_log.SPACE, contract.CONTRACT, inbox.INBOX, hold.UNTIL),
    *(run.RUN, run.CALL, run.PROGRESS, run.DUE, run.AWAITS, delegation.DELEGATION, delegation.WAIT),
    *(topic.TOPIC, topic.GROUP, topic.DEAD, topic.TAKEN, topic.CONSUMED),
    *(rows.EXPIRED, rows.LOGS, imported_snapshot.SPACE, restore_journal.SPACE),
)
_ADVICE = re.compile(
    r"(?:[:.;]| The store was damaged[^;]*;)? [Rr]un `verify`.*", re.DOTALL
)  # advice that is pointless in a report of `verify`


@telemetry.trace_operation(telemetry.VERIFY)
async def verify(ctx: StoreContext, session_id: str | None = None) -> VerifyReport:
    """Read everything, of the store or of one session, and check each digest and checksum chain."""
    if session_id is not None:
        return await _verify_contents(ctx, session_id)
    damage = tuple(Problem(checkpoint_id="", message=found) for found in await ctx.backend.find_damage())
    try:
        report = await _verify_contents(ctx)
    except HoldfastError as error:
        if not damage:
            raise
        # Damaged objects can't be read any further: they are reported, not raised.
        return VerifyReport(checked=0, problems=(*damage, Problem(checkpoint_id="", message=str(error))))
    return replace(report, problems=(*damage, *report.problems))


async def _verify_contents(ctx: StoreContext, session_id: str | None = None) -> VerifyReport:
    checked = expired = ended = 0
    found_damage = _Damage()
    only = rows.session_key(session_id) if session_id is not None else None
    heads = [item for item in await _readable_rows(ctx, rows.HEAD, found_damage) if only in (None, item[0].key)]
    numbers = _Numbers()
    contents = ContentCheck(ctx)
    tombstone_reader = TombstoneReader(ctx)

    async for page in record_pages(ctx) if only is None else _session_pages(ctx, only):
        listed: list[tuple[Record, StoredRecord]] = []
        for found in page:
            try:
                numbers.add(found.session, found.sequence)
                listed.append((found, lookup.unpack_listed(ctx, found)))
            except HoldfastError as error:
                found_damage.add(error, found.id)
        ahead = await _ReadAhead.read_page(ctx, contents, [stored for _, stored in listed])
        for found, stored in listed:
            try:
                if await ahead.is_expired(stored):
                    expired += 1
                    continue
                checked += 1
                try:
                    parent = await ahead.parent(stored, tombstone_reader)
                except HoldfastError as error:  # the parent is damaged, not the checkpoint after it
                    found_damage.add(error, stored.parent)
                    ended += 1
                else:
                    ended += _check_parent(stored, parent)
                await contents.check(stored)
            except HoldfastError as error:
                found_damage.add(error, found.id)
    # Last of all: a tombstone that was a record when it was read may have been packed since, but
    # not the other way round.
    for key, row in await _readable_rows(ctx, rows.GRAVES, found_damage):
        try:
            for tombstone in packed_tombstones.unpack(key, row) if packed_tombstones.is_pack(key) else ():
                if only in (None, tombstone.session):
                    expired += numbers.add(tombstone.session, tombstone.sequence)
        except HoldfastError as error:
            found_damage.add(error)
    await _check_heads(ctx, heads, numbers, found_damage)
    if only is None:
        for check in (_check_holds, _check_other_rows, _check_adapter_rows):
            await check(ctx, found_damage)
    return VerifyReport(checked=checked, expired=expired, ended_chains=ended, problems=found_damage.problems())


class _Damage:
    """The damage found: each object once, with the checkpoints that it keeps from exact restores."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, object], dict[str, None]] = {}

    def add(self, error: HoldfastError, checkpoint: bytes | None = None) -> None:
        part = error.part if isinstance(error, CorruptError) else None
        affected = self._found.setdefault((_ADVICE.sub("", str(error)).rstrip("."), part), {})
        if checkpoint is not None:
            affected[ids.to_text(checkpoint)] = None

    def problems(self) -> tuple[Problem, ...]:
        return tuple(
            Problem(checkpoint_id=next(iter(affected), ""), message=message, affected=tuple(affected))
            for (message, _), affected in self._found.items()
        )


async def _session_pages(ctx: StoreContext, session: bytes) -> AsyncIterator[list[Record]]:
    found = (await ctx.backend.session_records(session))[::-1]
    for start in range(0, len(found), PAGE):
        yield found[start : start + PAGE]


class _ReadAhead:
    """The data that the records of a page are checked with, read at once for all of them.

    Where damage prevents that, each record reads its own, so that the damage is reported where it
    is.
    """

    def __init__(self, ctx: StoreContext) -> None:
        self._ctx = ctx
        self._over: set[bytes] | None = None
        self._parents = RecordsAhead(ctx, None)

    @classmethod
    async def read_page(cls, ctx: StoreContext, contents: ContentCheck, page: Sequence[StoredRecord]) -> _ReadAhead:
        ahead = cls(ctx)
        with suppress(CorruptError):
            ahead._over = await lookup.find_expired(ctx, page)
        live = [stored for stored in page if ahead._over is None or stored.id not in ahead._over]
        ahead._parents = await RecordsAhead.of(ctx, (stored.parent for stored in live))
        with suppress(CorruptError):
            await contents.read_ahead(live)
        return ahead

    async def is_expired(self, stored: StoredRecord) -> bool:
        return await lookup.is_expired(self._ctx, stored) if self._over is None else stored.id in self._over

    async def parent(self, stored: StoredRecord, tombstone_reader: TombstoneReader) -> StoredRecord | None:
        return None if stored.parent is None else await self._parents.find(stored.parent, stored.tree, tombstone_reader)


class _Numbers:
    """The sequence numbers seen, by session."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, set[int]] = {}

    def add(self, session: bytes, number: int) -> bool:
        """Add a number; return whether it is new."""
        numbers = self._numbers.setdefault(session, set())
        known = number in numbers
        numbers.add(number)
        return not known

    def count_missing(self, session: bytes, last: int) -> int:
        """Return how many of the numbers from 1 to `last` were not seen."""
        return last - sum(number <= last for number in self._numbers.get(session, ()))


def _check_parent(stored: StoredRecord, parent: StoredRecord | None) -> bool:
    """Return whether the chain ends here, because the parent has expired or is gone."""
    if stored.parent is None:
        return False
    if parent is None:
        return True
    # Of a packed tombstone, only the beginning is known.
    checksum = parent.header["sum"] if parent.is_tombstone else parent.checksum
    if not stored.header["psum"].startswith(checksum):
        raise CorruptError(f"its parent {ids.to_text(parent.id)} is not the one it was saved after")
    return parent.is_tombstone


async def _check_heads(
    ctx: StoreContext, heads: Sequence[tuple[RowKey, Row]], numbers: _Numbers, damage: _Damage
) -> None:
    """Check the sessions of these head rows, which were read before the records."""
    for start in range(0, len(heads), PAGE):
        page = heads[start : start + PAGE]
        trees, unreadable = await _session_rows(ctx, [key.key for key, _ in page], damage)
        unpacked: list[tuple[RowKey, rows.Head]] = []
        for key, row in page:
            if key.key in unreadable:
                continue
            try:
                unpacked.append((key, rows.unpack_head(key, row)))
            except HoldfastError as error:
                await _add_unless_gone(ctx, key, error, damage)
        records_ahead = await RecordsAhead.of(ctx, (head.checkpoint for _, head in unpacked))
        for key, head in unpacked:
            try:
                await _check_head(key, head, trees, records_ahead, numbers)
            except HoldfastError as error:
                await _add_unless_gone(ctx, key, error, damage)


async def _session_rows(
    ctx: StoreContext, sessions: Sequence[bytes], damage: _Damage
) -> tuple[dict[RowKey, Row], set[bytes]]:
    """Return the rows of these sessions, and the sessions whose rows can't be read."""
    keys = [RowKey(rows.SESSION, session) for session in sessions]
    try:
        return await rows_by_key(ctx, keys), set()
    except CorruptError:
        found: dict[RowKey, Row] = {}
        unreadable: set[bytes] = set()
        for key in keys:  # each by itself, so that the damage hides nothing else
            try:
                found |= await rows_by_key(ctx, [key])
            except CorruptError as error:
                damage.add(error)
                unreadable.add(key.key)
        return found, unreadable


async def _check_head(
    key: RowKey, head: rows.Head, trees: Mapping[RowKey, Row], records_ahead: RecordsAhead, numbers: _Numbers
) -> None:
    name = rows.session_name(key.key)
    session = RowKey(rows.SESSION, key.key)
    row = trees.get(session)
    if row is None or rows.content(session, row) != key.tree:
        raise CorruptError(f"session {name!r:.60} is not listed under its tree")
    if missing := numbers.count_missing(key.key, head.sequence):
        raise CorruptError(f"{missing} of the {head.sequence} checkpoints of session {name!r:.60} are missing")
    if head.checkpoint is not None and await records_ahead.find(head.checkpoint, key.tree) is None:
        raise CorruptError(f"session {name!r:.60} stands at a checkpoint that is not there")


async def _add_unless_gone(ctx: StoreContext, key: RowKey, error: HoldfastError, damage: _Damage) -> None:
    if not await _is_gone(ctx, key):
        damage.add(error)


async def _is_gone(ctx: StoreContext, key: RowKey) -> bool:
    """Return whether the row was collected meanwhile, with its session."""
    try:
        return await ctx.backend.rows([key]) == [None]
    except HoldfastError:
        return False


async def _check_holds(ctx: StoreContext, damage: _Damage) -> None:
    """Check that pins and tags can be read, and that their checkpoints exist."""
    held: list[tuple[RowKey, Row, bytes]] = []
    pins, tags = [await _readable_rows(ctx, space, damage) for space in (hold.PIN, hold.TAG)]
    for key, row in [*pins, *tags]:
        try:
            if key.space == hold.PIN:
                hold.unpack_hold(key, row)
            checkpoint = key.key if key.space == hold.PIN else hold.unpack_tag(key, row).checkpoint
            held.append((key, row, checkpoint))
        except HoldfastError as error:
            if await _is_as_before(ctx, key, row):  # else it was removed meanwhile
                # The checkpoint itself is intact.
                pin = CorruptError(f"the pin of checkpoint {ids.to_text(key.key)} is damaged")
                damage.add(pin if key.space == hold.PIN else error)
    records_ahead = await RecordsAhead.of(ctx, (checkpoint for _, _, checkpoint in held))
    for key, row, checkpoint in held:
        try:
            stored = await records_ahead.find(checkpoint)
            if stored is None or stored.is_tombstone:
                raise CorruptError(f"checkpoint {ids.to_text(checkpoint)} is pinned or tagged, but is not there")
        except HoldfastError as error:
            if await _is_as_before(ctx, key, row):
                damage.add(error, checkpoint)


async def _check_other_rows(ctx: StoreContext, damage: _Damage) -> None:
    """Check that approvals, effects, runs, messages and all other rows can be read: lists need them."""
    for space in _OTHER_ROWS:
        for key, row in await _readable_rows(ctx, space, damage):
            await _check_row(ctx, key, row, damage)


async def _check_adapter_rows(ctx: StoreContext, damage: _Damage) -> None:
    """Check that rows of adapters can be read: those of the store, and those of checkpoints."""
    adapters = ctx.load_adapters()
    indexed = [rows_ for adapter in adapters for rows_ in adapter.rows.indexed]
    for space in [rows_.index_space for rows_ in indexed]:
        for key, row in await _readable_rows(ctx, space, damage):
            await _check_row(ctx, key, row, damage)
    of_store = [space for adapter in adapters for space in adapter.rows.of_no_checkpoint]
    for space in [*of_store, *(rows_.space for rows_ in indexed)]:
        after: bytes | None = None
        while page := await _readable_rows(ctx, space, damage, tree=STORE, after=after, limit=PAGE):
            after = page[-1][0].key
            for key, row in page:
                await _check_row(ctx, key, row, damage)


async def _is_as_before(ctx: StoreContext, key: RowKey, row: Row) -> bool:
    """Return whether a row is still the one that was read, as far as it can be read."""
    try:
        return await ctx.backend.rows([key]) == [row]
    except CorruptError:
        return True


async def _readable_rows(ctx: StoreContext, space: str, damage: _Damage, **part: Any) -> Sequence[tuple[RowKey, Row]]:
    """Return the rows of a space; none, and the damage is noted, if a damaged row prevents the listing."""
    try:
        return await ctx.backend.scan(space, **part)
    except CorruptError as error:
        damage.add(error)
        return []


async def _check_row(ctx: StoreContext, key: RowKey, row: Row, damage: _Damage) -> None:
    try:
        rows.content(key, row)
    except HoldfastError as error:
        if await _is_as_before(ctx, key, row):  # else it was changed meanwhile
            damage.add(error)


async def stats(ctx: StoreContext, damaged: list[DamagedCheckpoint] | None = None) -> Stats:
    """Return figures of the store.

    A damaged record raises its error, or is added to `damaged` if that is given.
    """
    usage = await ctx.backend.usage()
    capabilities = ctx.backend.capabilities
    logical = live = expired = 0
    async for page, over in unpacked_pages(ctx, damaged):
        expired += len(over)
        for _, stored in page:
            if stored.id not in over:
                live += 1
                logical += stored.manifest().logical_size()
    for key, row in await ctx.backend.scan(rows.GRAVES):
        expired += len(packed_tombstones.unpack(key, row)) if packed_tombstones.is_pack(key) else 0
    return Stats(
        backend=capabilities.name,
        location=capabilities.location,
        durability=capabilities.durability,
        sessions=len(await listing.sessions(ctx)),
        checkpoints=live,
        expired=expired,
        logical_bytes=logical,
        stored_bytes=usage.total_bytes,
        record_bytes=usage.record_bytes,
        segment_bytes=usage.segment_bytes,
        blob_bytes=usage.blob_bytes,
        row_bytes=usage.row_bytes,
    )
