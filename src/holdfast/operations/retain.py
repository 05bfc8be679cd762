"""retain: applies a retention policy. It expires what the policy does not keep, then runs gc.

The candidates come from a survey, and may have changed since. So the conditions are part of the
commits that expire: a checkpoint that was pinned, or became a head, is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import telemetry
from holdfast.backends.port import Usage, check_readable
from holdfast.format.rows import head, hold, inbox
from holdfast.format.rows.operation_log import Origin
from holdfast.format.rows.packed_tombstones import ABOUT_BYTES
from holdfast.format.state import record
from holdfast.format.state.reachable import MarkSet
from holdfast.format.state.usage import estimate_remaining
from holdfast.model import ids, retention
from holdfast.model.reports import RetentionReport, SessionRetention
from holdfast.model.retention import LiveCheckpoint, Retention
from holdfast.operations import lookup, tag
from holdfast.operations.context import StoreContext
from holdfast.operations.expire import BURIED_AT_ONCE, tombstone_all
from holdfast.operations.gc import collect
from holdfast.operations.record_pages import records_by_id
from holdfast.operations.store_scan import LiveRecord, StoreScan, scan_store

BY_POLICY = "retention"


@telemetry.trace_operation(telemetry.RETAIN)
async def retain(
    ctx: StoreContext,
    policy: Retention,
    *,
    session_id: str | None = None,
    agent_id: str | None = None,
    dry_run: bool = True,
    origin: Origin | None = None,
) -> RetentionReport:
    """Apply the policy; with `dry_run` only report.

    `session_id` and `agent_id` limit the candidates to the checkpoints of that session and to those
    that the agent made.
    """
    if not dry_run:
        await tag.settle_all(ctx)
    protected = await _list_protected(ctx)
    found = await scan_store(ctx)
    entries = [
        LiveCheckpoint(
            live.id,
            live.session,
            live.sequence,
            live.created_at_us,
            is_protected=live.id in protected
            or session_id not in (None, live.session)
            or agent_id not in (None, live.agent_id),
        )
        for live in found.live
        if not live.is_message  # `gc` applies the retention of their topics
    ]
    going = retention.may_go(policy, entries, ctx.now_us())
    estimate = _Estimate(found, [entry.id for entry in going])
    if policy.max_bytes is not None:
        limit = policy.max_bytes
        going = going[: retention.choose_fewest(len(going), lambda count: estimate.estimate_left(count) <= limit)]
    chosen = {entry.id for entry in going}
    if dry_run:
        return _report(policy, found, going, estimate.estimate_left(len(going)))
    if origin is not None:
        origin = origin._replace(id=ctx.new_id(None))
    gone = await _expire(ctx, [live for live in found.live if live.id in chosen], origin)
    await collect(ctx)
    after = await ctx.backend.usage()
    return _report(policy, found, [entry for entry in going if entry.id in gone], content_bytes(after), after)


def content_bytes(usage: Usage) -> int:
    return usage.record_bytes + usage.segment_bytes + usage.blob_bytes + usage.row_bytes


async def estimate_freed(ctx: StoreContext, checkpoints: Sequence[bytes]) -> int:
    """Return about how many more bytes gc frees if these expire than without them."""
    found = await scan_store(ctx)
    existing = {live.id for live in found.live}
    estimate = _Estimate(found, [id_ for id_ in dict.fromkeys(checkpoints) if id_ in existing])
    return max(estimate.estimate_left(0) - estimate.estimate_left(len(checkpoints)), 0)


async def _list_protected(ctx: StoreContext) -> set[bytes]:
    """Return the checkpoints that no policy chooses.

    These are heads of sessions, pinned and tagged checkpoints, and waiting handoffs.
    """
    pins, offers = check_readable(await ctx.backend.scan(hold.PIN)), check_readable(await ctx.backend.scan(inbox.INBOX))
    protected = {key.key for key, _ in pins} | {inbox.handoff_id(key) for key, _ in offers if inbox.is_waiting(key)}
    heads = [head.unpack_head(key, row).checkpoint for key, row in await ctx.backend.scan(head.HEAD)]
    existing = await records_by_id(ctx, [checkpoint for checkpoint in heads if checkpoint is not None])
    tips = {id_: record.unpack(ctx.codec, found.data, expected_id=id_) for id_, found in existing.items()}
    over = await lookup.find_expired(ctx, tips.values())
    protected |= tips.keys() - over
    for checkpoint in heads:
        if checkpoint is not None and checkpoint not in protected:  # expired: the tip of the session is an ancestor
            tip = await lookup.find_nearest_live(ctx, checkpoint)
            if tip is not None:
                protected.add(tip.id)
    return protected


class _Estimate:
    """An estimate of the store's size after the first candidates have expired and gc has run."""

    def __init__(self, found: StoreScan, candidates: Sequence[bytes]) -> None:
        self._found = found
        by_id = {live.id: live for live in found.live}
        self._candidates: list[LiveRecord] = [by_id.pop(id_) for id_ in candidates]
        self._staying = list(by_id.values())
        self._before = content_bytes(found.usage)
        self._stored = sum(segment.size for segment in found.segments) + sum(blob.size for blob in found.blobs)

    def estimate_left(self, gone: int) -> int:
        found = self._found
        marks = MarkSet()
        left = [*self._staying, *self._candidates[gone:]]
        for live in left:
            marks.add(live.spans, ())
        marks.add((), found.blobs_of(left))
        freed = self._stored - estimate_remaining(found.segments, found.blobs, marks)
        freed += found.ended_bytes + sum(found.tombstones.values()) + found.undoable_bytes
        freed += sum(live.size for live in self._candidates[:gone])
        freed -= (found.ended + gone) * ABOUT_BYTES  # the size of their packed tombstones
        return max(self._before - freed, 0)


async def _expire(ctx: StoreContext, going: Sequence[LiveRecord], origin: Origin | None) -> set[bytes]:
    by_tree: dict[bytes, list[bytes]] = {}
    for live in going:
        by_tree.setdefault(live.tree, []).append(live.id)
    gone: set[bytes] = set()
    for tree, of_tree in by_tree.items():
        for start in range(0, len(of_tree), BURIED_AT_ONCE):
            again = await ctx.backend.records(of_tree[start : start + BURIED_AT_ONCE])
            read = [(item, record.unpack(ctx.codec, item.data, expected_id=item.id)) for item in again if item]
            batch = [(item, stored) for item, stored in read if not stored.is_tombstone]
            gone.update(await tombstone_all(ctx, tree, batch, BY_POLICY, keep_heads=True, origin=origin))
            origin = origin and origin._replace(part=origin.part + 1)
    return gone


def _report(
    policy: Retention, found: StoreScan, going: Sequence[LiveCheckpoint], bytes_after: int, after: Usage | None = None
) -> RetentionReport:
    live: dict[str, int] = {}
    for live_record in found.live:
        live[live_record.session] = live.get(live_record.session, 0) + 1
    by_session: dict[str, list[str]] = {}
    for entry in going:
        by_session.setdefault(entry.session, []).append(ids.to_text(entry.id))
    return RetentionReport(
        dry_run=after is None,
        sessions=tuple(
            SessionRetention(session_id=name, going=tuple(of_session), kept=live[name] - len(of_session))
            for name, of_session in sorted(by_session.items())
        ),
        going=len(going),
        kept=len(found.live) - len(going),
        bytes_before=content_bytes(found.usage),
        bytes_after=bytes_after,
        store_bytes_before=found.usage.total_bytes,
        store_bytes_after=after.total_bytes if after else None,
        max_bytes=policy.max_bytes,
    )
