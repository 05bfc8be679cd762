"""Single records and session tips, read from the store: the first step of every operation."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.backends.port import ABSENT, Backend, Record, Row, RowKey, Segment, Span
from holdfast.errors import CheckpointExpiredError, CheckpointNotFoundError, CorruptError
from holdfast.format.rows import head as rows
from holdfast.format.rows import hold as holds
from holdfast.format.state import assemble, record, write_plan
from holdfast.format.state.manifest import Manifest, Path
from holdfast.format.state.record import EPOCH, StoredRecord
from holdfast.model import ids
from holdfast.operations import tombstones
from holdfast.operations.context import StoreContext
from holdfast.operations.session_cache import SessionTip
from holdfast.operations.tombstones import TombstoneReader

HOLDS_AT_ONCE = 200
Parts = tuple[Sequence[Sequence[Segment]], Sequence[bytes | None]]


async def find_record(
    ctx: StoreContext, id_: bytes, tree: bytes | None = None, tombstone_reader: TombstoneReader | None = None
) -> StoredRecord | None:
    """Return the record of that id, live, expired or a tombstone; None if there is none.

    A caller that knows the tree of a packed tombstone passes `tree`. A caller that asks for many
    passes a `tombstone_reader`.
    """
    if tombstone_reader is not None and (buried := tombstone_reader.get_cached(id_)) is not None:
        return buried
    [found] = await ctx.backend.records([id_])
    return await find_stored(ctx, id_, found, tree, tombstone_reader)


async def find_stored(
    ctx: StoreContext,
    id_: bytes,
    found: Record | None,
    tree: bytes | None = None,
    tombstone_reader: TombstoneReader | None = None,
) -> StoredRecord | None:
    """Do the same as `find_record` with the store's answer `found` for that id."""
    if found is not None:
        return record.unpack(ctx.codec, found.data, expected_id=id_)
    return await (tombstone_reader or TombstoneReader(ctx)).find(id_, tree)


def unpack_listed(ctx: StoreContext, found: Record, session: bytes | None = None) -> StoredRecord:
    """Return a record that was found by session and sequence number, checked to have these."""
    stored = record.unpack(ctx.codec, found.data, expected_id=found.id)
    if (rows.session_key(stored.session), stored.sequence) != (session or found.session, found.sequence):
        raise CorruptError(
            f"checkpoint {ids.to_text(found.id)} is stored under another session or sequence number than it was saved "
            "with: the store was changed by another program. Run `verify`"
        )
    return stored


async def unpack_live(ctx: StoreContext, found: Record) -> StoredRecord | None:
    """Return a record that was found by session and sequence number; None if it has expired."""
    stored = unpack_listed(ctx, found)
    return None if await is_expired(ctx, stored) else stored


async def load_live_record(ctx: StoreContext, id_: bytes) -> StoredRecord:
    """Return the live record of that id. Raise the error that says why there is none."""
    return await _check_live(ctx, id_, await find_record(ctx, id_))


async def live_record_and_segments(ctx: StoreContext, id_: bytes) -> tuple[StoredRecord, Mapping[Span, list[Segment]]]:
    """Return also the segments of its state that were read with it, for `load_parts`."""
    found, at_hand = await ctx.backend.record_and_segments(id_)
    return await _check_live(ctx, id_, await find_stored(ctx, id_, found)), at_hand


async def _check_live(ctx: StoreContext, id_: bytes, stored: StoredRecord | None) -> StoredRecord:
    if stored is None:
        raise CheckpointNotFoundError(
            f"there is no checkpoint {ids.to_text(id_)} in {ctx.backend.capabilities.location}: it was never "
            "saved here, or its whole tree was collected. `holdfast sessions` lists what is there"
        )
    if await is_expired(ctx, stored):
        raise CheckpointExpiredError(_expiry(stored))
    return stored


async def is_expired(ctx: StoreContext, stored: StoredRecord) -> bool:
    """Return whether a checkpoint may no longer be read.

    That is so if it was expired, or if its time to live is over and neither a pin, nor a tag, nor a
    checkpoint that can't be read without it holds it. Holds are looked up only then: a checkpoint
    without a time to live costs nothing here.
    """
    return stored.id in await find_expired(ctx, [stored])


async def find_expired(ctx: StoreContext, checkpoints: Iterable[StoredRecord]) -> set[bytes]:
    """Return the ids of those that may no longer be read (`is_expired`).

    The holds of all of them are looked up at once.
    """
    now = ctx.now_us()
    ended = [stored for stored in checkpoints if stored.is_expired(now)]
    over = {stored.id for stored in ended if stored.is_tombstone}
    doubtful = [stored for stored in ended if not stored.is_tombstone]
    for start in range(0, len(doubtful), HOLDS_AT_ONCE):
        batch = doubtful[start : start + HOLDS_AT_ONCE]
        keys = [(holds.hold_key(stored.id, stored.tree), holds.extension_key(stored)) for stored in batch]
        found = iter(await ctx.backend.rows([key for pair in keys for key in pair]))
        for stored, (_, until), hold, extended_until in zip(batch, keys, found, found, strict=True):
            if hold is None and (extended_until is None or now >= holds.unpack_until(until, extended_until)):
                over.add(stored.id)
    return over


def _expiry(stored: StoredRecord) -> str:
    header = stored.header
    if stored.is_tombstone:
        when = f"{_moment(header['when'])} ({header['why']})"
    else:
        assert stored.expires_at_us is not None
        when = f"{_moment(stored.expires_at_us)} (its TTL of {header['ttl']:g} s)"
    return (
        f"checkpoint {ids.to_text(stored.id)} of session {stored.session!r:.60} expired on {when}. "
        "`timeline` lists what is still there"
    )


def _moment(us: int) -> str:
    return f"{EPOCH + timedelta(microseconds=us):%Y-%m-%d %H:%M:%S} UTC"


async def load_state(ctx: StoreContext, manifest: Manifest, *, verify: bool) -> tuple[Any, Any]:
    """Return the two parts of the state that a manifest describes."""
    stored, blobs = await load_parts(ctx.backend, manifest)
    return assemble.assemble(ctx.codec, manifest, stored, blobs, verify=verify)


async def load_parts(
    backend: Backend, manifest: Manifest, at_hand: Mapping[Span, list[Segment]] | None = None
) -> Parts:
    """Return the stored parts of a manifest: the segments of its spans, and its blobs.

    Segments that are `at_hand` are not requested.
    """
    spans = manifest.spans()
    stored: Sequence[Sequence[Segment]]
    if at_hand and all(map(at_hand.get, spans)):
        stored = [at_hand[span] for span in spans]
    else:
        stored = await backend.segments(spans) if spans else []
    return stored, await backend.blobs([blob.hash for blob in manifest.blobs]) if manifest.blobs else []


async def find_tree(ctx: StoreContext, session: bytes) -> bytes | None:
    """Return the tree that a session belongs to, None if there is no such session."""
    key = RowKey(rows.SESSION, session)
    [row] = await ctx.backend.rows([key])
    return rows.content(key, row) if row else None


async def find_head(ctx: StoreContext, session: bytes, tree: bytes) -> tuple[rows.Head, Row] | None:
    key = rows.head_key(session, tree)
    [row] = await ctx.backend.rows([key])
    return (rows.unpack_head(key, row), row) if row else None


async def find_nearest_live(
    ctx: StoreContext, id_: bytes | None, tree: bytes | None = None, *, but_not: Container[bytes] = frozenset()
) -> StoredRecord | None:
    """Return the checkpoint or its nearest ancestor that has not expired and is not `but_not`, or None."""
    tombstone_reader = TombstoneReader(ctx)
    while id_ is not None:
        stored = await find_record(ctx, id_, tree, tombstone_reader)
        if stored is None:
            raise CorruptError(
                f"checkpoint {ids.to_text(id_)} is not there, though it is the head or an ancestor of another: "
                "the store is damaged. Run `verify`; other checkpoints can still be restored by their ids"
            )
        if id_ not in but_not and not await is_expired(ctx, stored):
            return stored
        id_ = stored.parent
    return None


async def load_tip(ctx: StoreContext, session: bytes, to_append: Iterable[Path] = ()) -> SessionTip:
    """Return the tip of a session, as stored, with the data for declared appends to these lists.

    A session that has records but no head, or a head without its record, is damaged: treating it as
    new would make an agent start from scratch. It is read twice, since its tree may be collected
    between two reads.
    """

    async def read(backend: Backend) -> SessionTip:
        tip = await _load_tip(ctx.read_from(backend), session)
        spans = write_plan.list_append_spans(tip.manifest, to_append) if tip.manifest is not None else []
        if spans:
            tip.at_hand = dict(zip(spans, await backend.segments(spans), strict=True))
        return tip

    return await ctx.backend.batch_reads(read)


async def _load_tip(ctx: StoreContext, session: bytes) -> SessionTip:
    for is_last in (False, True):
        tree = await find_tree(ctx, session)
        found = await find_head(ctx, session, tree) if tree is not None else None
        try:
            if found is None:
                if await _has_checkpoints(ctx, session, tree):
                    raise CorruptError(
                        f"session {rows.session_name(session)!r:.60} has checkpoints but no head: the store is "
                        "damaged. Run `verify`; its checkpoints can still be restored by their ids"
                    )
                return SessionTip(tree=tree, version=ABSENT, head=rows.Head(None, 0), head_value=None, checkpoint=None)
            head, row = found
            checkpoint = await find_nearest_live(ctx, head.checkpoint, tree)
            return SessionTip(
                tree=tree,
                version=row.version,
                head=head,
                head_value=row.value,
                checkpoint=checkpoint,
                manifest=checkpoint.manifest() if checkpoint else None,
            )
        except CorruptError:
            if is_last:
                raise
    raise AssertionError("unreachable")


async def _has_checkpoints(ctx: StoreContext, session: bytes, tree: bytes | None) -> bool:
    """Return whether the session has a checkpoint, packed tombstones included."""
    if await ctx.backend.session_records(session, limit=1):
        return True
    return tree is not None and bool(await tombstones.numbers_of(ctx, tree, session))


async def revalidated_tip(ctx: StoreContext, session: bytes, to_append: Iterable[Path] = ()) -> SessionTip:
    """Return the tip of a session, as stored; the cached one if the head's row has not changed."""
    tip = cached_tip(ctx, session)
    if tip is not None and tip.tree is not None:
        [row] = await ctx.backend.rows([rows.head_key(session, tip.tree)])
        if row is not None and row.value == tip.head_value:
            return tip
    return await load_tip(ctx, session, to_append)


def cached_tip(ctx: StoreContext, session: bytes) -> SessionTip | None:
    """Return the cached tip of a session, unless its time to live is over.

    Then only the store knows whether something holds it.
    """
    tip = ctx.memory.get(session)
    if tip is None or tip.checkpoint is None or "ttl" not in tip.checkpoint.header:
        return tip
    return None if tip.checkpoint.is_expired(ctx.now_us()) else tip


async def get_tip(ctx: StoreContext, session: bytes, to_append: Iterable[Path] = ()) -> SessionTip:
    """Return the tip of a session, from the cache or from the store."""
    return cached_tip(ctx, session) or await load_tip(ctx, session, to_append)
