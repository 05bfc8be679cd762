"""gc: expires checkpoints past their TTL and removes unreferenced data. Safe beside writers.

1. Records past their TTL become tombstones. The bytes kept for undoing an expiry are dropped, which
   makes it final.
2. The present segments, blobs and heads are listed.
3. Every live record marks its references. Every commit made meanwhile has moved a head: the
   sessions whose head is not as listed are read again.
4. Everything listed in 2 and not marked in 3 is removed, if it is still as listed: a segment that
   was sealed meanwhile, or a blob that was written again, is left for the next time. If the end of
   a log goes and other elements stay, an *end mark* takes the place of the last element. So a log's
   tail never moves back, and an element number never gets other content: what another gc or
   `rekey --data` has listed by its bounds is still the same if the bounds are.
5. A tree without a live record is removed whole, unless one of its sessions is leased; so is a
   session that was leased and never saved to. In the other trees, final tombstones are packed: they
   stay known, but take few bytes each (format/rows/packed_tombstones.py).

A checkpoint committed after 3 refers only to new segments and to references of its parent. Its
parent was alive when it was committed, so it was alive in 3, and marked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast import telemetry
from holdfast.backends.port import (
    STORE,
    BlobInfo,
    Commit,
    CommitConflict,
    Record,
    RowKey,
    RowWrite,
    SegmentDelete,
    SegmentInfo,
    Span,
)
from holdfast.format.rows import head as rows
from holdfast.format.rows import packed_tombstones as packs
from holdfast.format.rows import run as run_rows
from holdfast.format.state import reachable as pure
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.model.reports import CollectionReport
from holdfast.operations import (
    approval,
    delegation,
    gc_adapter_rows,
    gc_topics,
    inbox,
    ledger,
    lookup,
    operation_log,
    snapshot_deltas,
    snapshot_read,
    tag,
)
from holdfast.operations import lease as leasing
from holdfast.operations import tombstones as burying
from holdfast.operations.blob_addresses import listed_hashes
from holdfast.operations.context import StoreContext
from holdfast.operations.expire import BY_TTL, tombstone_all
from holdfast.operations.gc_rows import gc_rows
from holdfast.operations.record_pages import records_by_id, unpacked_pages
from holdfast.operations.snapshot_reachability import SnapshotReachability

PAGE = 1000
BATCH = 200
CANCELLATION_US = 24 * 3600 * 1_000_000  # so long a cancelled session without checkpoints stays


@telemetry.trace_operation(telemetry.GC)
async def collect(ctx: StoreContext, *, dry_run: bool = False, keep_undoable: bool = False) -> CollectionReport:
    """Remove unreferenced data; with `dry_run` only report it.

    A dry run also counts checkpoints whose TTL is over. With `keep_undoable`, manual expiries stay
    undoable until their TTL is over, too.
    """
    if not dry_run:
        await tag.settle_all(ctx)
    settled = 0 if dry_run else await gc_topics.gc_topics(ctx)
    expired = settled + await _expire_by_ttl(ctx, dry_run=dry_run)
    if not dry_run:
        await _forget_expired(ctx, keep_undoable=keep_undoable)
    segments, blobs, heads = await _list_contents(ctx)
    marks = pure.MarkSet()
    trees, heads = await _mark(ctx, marks, heads, dry_run=dry_run)
    made_from = await snapshot_deltas.find_delta_parts(ctx, marks.blobs, listed_hashes(ctx.backend, blobs))
    marks.add((), [hash_ for hashes in made_from.values() for hash_ in hashes])

    ends = {segment.log: segment.first for segment in segments if segment.log in marks.logs()}
    end_marks = await _find_end_marks(ctx, [each for each in segments if ends.get(each.log) == each.first], marks)
    deletes: list[SegmentDelete] = []
    freed = trimmed = 0
    for segment in segments:
        live = marks.live_parts(segment)
        is_end = ends.get(segment.log) == segment.first
        if not live and segment not in end_marks:
            deletes.append(pure.delete_segment(segment, mark_end=is_end))
            freed += segment.size
        elif live and pure.needs_trimming(segment, live):
            trim = await _trim(ctx, segment, live, mark_end=is_end)
            if trim is not None:
                deletes.append(trim)
                trimmed += 1
                freed += max(segment.size - sum(len(data) for _, _, data in trim.pieces), 0)
    live_blobs = {ctx.backend.address(hash_) for hash_ in marks.blobs}
    dead_blobs = {blob.hash: blob.written_at_us + 1 for blob in blobs if blob.hash not in live_blobs}
    freed += sum(blob.size for blob in blobs if blob.hash in dead_blobs)
    if not dry_run:
        for start in range(0, len(deletes), BATCH):
            await ctx.backend.commit(Commit(tree=STORE, delete_segments=deletes[start : start + BATCH]))
        dead = list(dead_blobs.items())
        for start in range(0, len(dead), PAGE):
            await ctx.backend.commit(Commit(tree=STORE, delete_blobs=dict(dead[start : start + PAGE])))
    records, record_bytes = await _remove_trees(ctx, trees, heads, dry_run=dry_run)
    packed, packed_bytes = await _pack_tombstones(ctx, trees, dry_run=dry_run)
    if not dry_run:
        await inbox.gc_inbox(ctx)
        await approval.gc_approvals(ctx)
        await delegation.gc_delegations(ctx)
        for space in (run_rows.RUN, run_rows.CALL, run_rows.PROGRESS):
            await gc_rows(ctx, space)
        await gc_topics.gc_consumed(ctx)
        await gc_topics.gc_dead(ctx)
        await ledger.gc_ledger(ctx)
        await gc_adapter_rows.gc_adapter_rows(ctx)
        await operation_log.gc_operation_log(ctx)
    if not dry_run and (deletes or dead_blobs or records or packed):
        await ctx.backend.compact()
    return CollectionReport(
        dry_run=dry_run,
        expired_by_ttl=expired,
        records=records,
        segments=len(deletes) - trimmed,
        segments_trimmed=trimmed,
        blobs=len(dead_blobs),
        tombstones_packed=packed,
        bytes_freed=freed + record_bytes + packed_bytes,
    )


async def _expire_by_ttl(ctx: StoreContext, *, dry_run: bool) -> int:
    ending: dict[bytes, list[tuple[Record, StoredRecord]]] = {}
    async for page, over in unpacked_pages(ctx):
        for found, stored in page:
            if stored.id in over and not stored.is_tombstone:
                ending.setdefault(stored.tree, []).append((found, stored))
    if dry_run:
        return sum(map(len, ending.values()))
    return sum([len(await tombstone_all(ctx, tree, of_tree, BY_TTL)) for tree, of_tree in ending.items()])


async def _forget_expired(ctx: StoreContext, *, keep_undoable: bool) -> None:
    """Drop the bytes kept for undoing, which makes these expiries final.

    With `keep_undoable`, drop only those of checkpoints whose TTL is over: an undo would not bring
    them back.
    """
    kept: dict[bytes, list[RowWrite]] = {}
    now = ctx.now_us()
    for key, row in await ctx.backend.scan(rows.EXPIRED):
        if keep_undoable:
            original = record.unpack(ctx.codec, rows.content(key, row), expected_id=key.key)
            if not original.is_expired(now):
                continue
        kept.setdefault(key.tree, []).append(RowWrite(key, None, row.version))
    for tree, writes in kept.items():
        for start in range(0, len(writes), BATCH):
            await _drop(ctx, tree, writes[start : start + BATCH])


async def _drop(ctx: StoreContext, tree: bytes, writes: list[RowWrite]) -> None:
    """Drop these rows together; on a conflict with another caller, one by one."""
    try:
        await ctx.backend.commit(Commit(tree=tree, rows=writes))
    except CommitConflict:
        if len(writes) > 1:
            for write in writes:
                await _drop(ctx, tree, [write])


Heads = dict[RowKey, tuple[int, rows.Head]]


async def _list_contents(ctx: StoreContext) -> tuple[list[SegmentInfo], list[BlobInfo], Heads]:
    segments: list[SegmentInfo] = []
    while page := await ctx.backend.page_segments((segments[-1].log, segments[-1].first) if segments else None, PAGE):
        segments += page
    blobs: list[BlobInfo] = []
    while page_of_blobs := await ctx.backend.page_blobs(blobs[-1].hash if blobs else None, PAGE):
        blobs += page_of_blobs
    return segments, blobs, await _heads(ctx)


async def _heads(ctx: StoreContext) -> Heads:
    return {key: (row.version, rows.unpack_head(key, row)) for key, row in await ctx.backend.scan(rows.HEAD)}


@dataclass(slots=True)
class _Tree:
    """The records and rows found of a tree."""

    is_alive: bool = False
    tombstones: dict[bytes, tuple[Record, StoredRecord]] = field(default_factory=dict)


async def _mark(
    ctx: StoreContext, marks: pure.MarkSet, heads: Heads, *, dry_run: bool
) -> tuple[dict[bytes, _Tree], Heads]:
    """Mark the references of live records.

    Return the trees, and the heads as they were when the last record was marked: if they are
    unchanged later, nothing was saved since.
    """
    trees: dict[bytes, _Tree] = {}
    now = ctx.now_us()
    reach = SnapshotReachability(snapshot_read.make_loader(ctx))

    async def mark(found: Record, stored: StoredRecord, *, is_expired: bool) -> None:
        tree = trees.setdefault(stored.tree, _Tree())
        if dry_run and is_expired and not stored.is_tombstone:  # as it will be
            found = found._replace(data=record.pack_tombstone(ctx.codec, stored, now, BY_TTL))
            stored = record.unpack(ctx.codec, found.data)
        if stored.is_tombstone:
            tree.tombstones[stored.id] = (found, stored)
        else:
            tree.is_alive = True
            await _mark_contents(marks, reach, stored)

    async for page, over in unpacked_pages(ctx):
        for found, stored in page:
            await mark(found, stored, is_expired=stored.id in over)
    heads_now = await _heads(ctx)
    for key, (version, _) in heads_now.items():
        known_version, known_head = heads.get(key, (0, rows.Head(None, 0)))
        if version != known_version:
            for found in await ctx.backend.session_records(key.key):
                if found.sequence <= known_head.sequence:
                    break
                stored = record.unpack(ctx.codec, found.data, expected_id=found.id)
                await mark(found, stored, is_expired=await lookup.is_expired(ctx, stored))
    if not dry_run:
        await _mark_undoable(ctx, marks, reach, trees)
    marks.add((), reach.list_all())
    return trees, heads_now


async def _mark_contents(marks: pure.MarkSet, reach: SnapshotReachability, stored: StoredRecord) -> None:
    """Mark the references of a live checkpoint; `reach` collects its files."""
    marks.mark(stored.manifest())
    reference = snapshot_read.reference_of(stored)
    if reference is not None:
        await reach.learn(reference)


async def _mark_undoable(
    ctx: StoreContext, marks: pure.MarkSet, reach: SnapshotReachability, trees: dict[bytes, _Tree]
) -> None:
    """Mark expiries since step 1 that can still be undone. The ones left in `trees` are final.

    A tombstone has a row for as long as it can be undone. One without a row that has not changed
    since it was read is final. One that has changed was undone meanwhile, and perhaps expired
    again: it is read again.
    """
    doubtful = {id_: found.data for tree in trees.values() for id_, (found, _) in tree.tombstones.items()}
    while True:
        for key, row in await ctx.backend.scan(rows.EXPIRED):
            original = record.unpack(ctx.codec, rows.content(key, row), expected_id=key.key)
            await _mark_contents(marks, reach, original)
            tree = trees.setdefault(original.tree, _Tree())
            tree.is_alive = True
            tree.tombstones.pop(original.id, None)
            doubtful.pop(original.id, None)
        changed: dict[bytes, bytes] = {}
        for found in (await records_by_id(ctx, doubtful)).values():
            if found.data == doubtful[found.id]:
                continue
            stored = record.unpack(ctx.codec, found.data, expected_id=found.id)
            trees[stored.tree].is_alive = True
            trees[stored.tree].tombstones.pop(stored.id, None)
            if stored.is_tombstone:
                changed[stored.id] = found.data
            else:
                await _mark_contents(marks, reach, stored)
        if not changed:
            return
        doubtful = changed


async def _find_end_marks(ctx: StoreContext, ends: list[SegmentInfo], marks: pure.MarkSet) -> set[SegmentInfo]:
    """Return those of the last segments of logs that are end marks of an earlier gc."""
    asked = [end for end in ends if pure.may_be_end_mark(end) and not marks.live_parts(end)]
    found: set[SegmentInfo] = set()
    for start in range(0, len(asked), BATCH):
        page = asked[start : start + BATCH]
        spans = [Span(end.log, end.first, end.first + 1) for end in page]
        for end, segments in zip(page, await ctx.backend.segments(spans), strict=True):
            if [segment.data for segment in segments] == [pure.END_MARK]:
                found.add(end)
    return found


async def _trim(
    ctx: StoreContext, segment: SegmentInfo, live: list[tuple[int, int]], *, mark_end: bool
) -> SegmentDelete | None:
    [found] = await ctx.backend.segments([Span(segment.log, segment.first, segment.first + segment.length)])
    if len(found) != 1 or (found[0].first, found[0].length) != (segment.first, segment.length):
        return None  # sealed meanwhile
    return pure.trim_segment(segment.log, found[0], live, mark_end=mark_end)


def _was_cancelled_long_ago(ctx: StoreContext, held: rows.LeaseRow) -> bool:
    """Return whether it was cancelled so long ago that no worker of the session is left."""
    made = held.cancellation
    return made is not None and ctx.now_us() > made.at_us + CANCELLATION_US


async def _remove_trees(
    ctx: StoreContext, trees: dict[bytes, _Tree], heads: Heads, *, dry_run: bool
) -> tuple[int, int]:
    """Remove the trees that have only tombstones, packed or not, with their heads and sessions.

    A tree with a leased session stays: the holder may save to it, and must not lose the lease.
    """
    count = size = 0
    heads_of: dict[bytes, list[RowKey]] = {}
    for key in heads:
        heads_of.setdefault(key.tree, []).append(key)
    for tree, found in (trees | _never_saved_to(trees, heads)).items():
        if found.is_alive:
            continue
        of_tree = heads_of.get(tree, [])
        leases = [held for key in of_tree if (held := heads[key][1].lease) is not None]
        if any(leasing.is_alive(ctx, held) and not _was_cancelled_long_ago(ctx, held) for held in leases):
            continue
        if not found.tombstones and await _has_open_run(ctx, tree):
            continue
        packed = dict(await ctx.backend.scan(rows.GRAVES, tree=tree))
        writes = [RowWrite(key, None, heads[key][0]) for key in of_tree]
        session_keys = [RowKey(rows.SESSION, key.key) for key in of_tree]
        for key, row in zip(session_keys, await ctx.backend.rows(session_keys), strict=True):
            if row is not None:
                writes.append(RowWrite(key, None, row.version))
        writes += packs.removal(tree, packed)
        deletes = [(record.id, record.data) for record, _ in found.tombstones.values()]
        if not dry_run:
            try:
                await ctx.backend.commit(Commit(tree=tree, rows=writes, delete_records=deletes))
            except CommitConflict:
                continue  # another writer saves to it again: it stays
            for key in of_tree:
                ctx.memory.drop(key.key)
        count += len(deletes) + packs.count(tree, packed)
        size += sum(len(data) for _, data in deletes) + sum(len(row.value) for row in packed.values())
    return count, size


async def _has_open_run(ctx: StoreContext, tree: bytes) -> bool:
    """Return whether a worker is still to carry out a run of the tree, which may not have saved yet."""
    for key, row in await ctx.backend.scan(run_rows.RUN, tree=tree):
        run = run_rows.unpack_run(key, row)
        if run.function is not None and run.state not in run_rows.OVER:
            return True
    return False


def _never_saved_to(trees: dict[bytes, _Tree], heads: Heads) -> dict[bytes, _Tree]:
    """Return the trees of sessions that were leased and never saved to.

    A head without records but with a sequence number is damage: `verify` must find it.
    """
    return {key.tree: _Tree() for key, (_, head) in heads.items() if key.tree not in trees and head.sequence == 0}


async def _pack_tombstones(ctx: StoreContext, trees: dict[bytes, _Tree], *, dry_run: bool) -> tuple[int, int]:
    count = size = 0
    for tree, found in trees.items():
        if found.is_alive and found.tombstones:
            moved, freed = await burying.pack_expired(ctx, tree, list(found.tombstones.values()), dry_run=dry_run)
            count += moved
            size += freed
    return count, size
