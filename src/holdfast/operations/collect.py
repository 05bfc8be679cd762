"""gc: ends what has outlived its TTL, and removes what nothing refers to any more. Safe beside writers.

1. Records past their TTL become tombstones. The bytes kept for undoing an expiry are dropped, which makes it final.
2. The runs, blobs and heads that are there now are listed.
3. Every live record marks what it refers to. Whatever was committed meanwhile has moved a head: the sessions whose
   head is not as listed are read again.
4. What was listed in 2 and not marked in 3 is removed, if it is still as listed: a run that was sealed meanwhile, or a
   blob that was written again, is left for the next time.
5. A tree without a live record is removed whole, unless somebody holds the lease of one of its sessions; so is a session
   that was leased and never saved to. Of the other trees, the tombstones that are final are packed: they go on being
   known, but take few bytes each (objects/graves.py).

A checkpoint committed after 3 refers only to new runs and to what its parent refers to; its parent was alive when it
was committed, so it was alive in 3, and marked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.backends.port import (
    STORE,
    BlobInfo,
    Commit,
    CommitConflict,
    Record,
    RowKey,
    RowWrite,
    RunDelete,
    RunInfo,
    Span,
)
from holdfast.model.reports import CollectionReport
from holdfast.objects import collect as pure
from holdfast.objects import graves as packs
from holdfast.objects import record, rows
from holdfast.objects.record import Stored
from holdfast.operations import approvals, deltas, inbox, ledger, leftovers, oplog, reading, snapshots, tags
from holdfast.operations import graves as burying
from holdfast.operations import lease as leasing
from holdfast.operations.expire import BY_TTL, bury_all
from holdfast.operations.inspect import all_records
from holdfast.operations.reach import Reach
from holdfast.operations.services import Services

PAGE = 1000
BATCH = 200


async def collect(services: Services, *, dry_run: bool = False, keep_undoable: bool = False) -> CollectionReport:
    """Removes what can go; with `dry_run` only says what would. What is marked dead by a dry run's TTL is counted. With
    `keep_undoable`, what was expired by hand stays undoable, until its TTL is over, too."""
    if not dry_run:
        await tags.settle_all(services)
    expired = await _expire_by_ttl(services, dry_run=dry_run)
    if not dry_run:
        await _forget_expired(services, keep_undoable=keep_undoable)
    runs, blobs, heads = await _listed(services)
    marks = pure.Marks()
    trees, heads = await _mark(services, marks, heads, dry_run=dry_run)
    made_from = await deltas.made_from(services, marks.blobs, {blob.hash for blob in blobs})
    marks.add((), [hash_ for hashes in made_from.values() for hash_ in hashes])

    deletes: list[RunDelete] = []
    freed = trimmed = 0
    for run in runs:
        live = marks.live_parts(run)
        if not live:
            deletes.append(RunDelete(run.log, run.first, run.length))
            freed += run.size
        elif pure.needs_trimming(run, live):
            trim = await _trim(services, run, live)
            if trim is not None:
                deletes.append(trim)
                trimmed += 1
                freed += max(run.size - sum(len(data) for _, _, data in trim.pieces), 0)
    dead_blobs = {blob.hash: blob.written_at_us + 1 for blob in blobs if blob.hash not in marks.blobs}
    freed += sum(blob.size for blob in blobs if blob.hash in dead_blobs)
    if not dry_run:
        for start in range(0, len(deletes), BATCH):
            await services.backend.commit(Commit(tree=STORE, delete_runs=deletes[start : start + BATCH]))
        dead = list(dead_blobs.items())
        for start in range(0, len(dead), PAGE):
            await services.backend.commit(Commit(tree=STORE, delete_blobs=dict(dead[start : start + PAGE])))
    records, record_bytes = await _remove_trees(services, trees, heads, dry_run=dry_run)
    packed, packed_bytes = await _pack_tombstones(services, trees, dry_run=dry_run)
    if not dry_run:
        await inbox.forget(services)
        await approvals.forget(services)
        await ledger.forget(services)
        await leftovers.forget(services)
        await oplog.forget(services)
    if not dry_run and (deletes or dead_blobs or records or packed):
        await services.backend.compact()
    return CollectionReport(
        dry_run=dry_run,
        expired_by_ttl=expired,
        records=records,
        runs=len(deletes) - trimmed,
        runs_trimmed=trimmed,
        blobs=len(dead_blobs),
        tombstones_packed=packed,
        bytes_freed=freed + record_bytes + packed_bytes,
    )


async def _expire_by_ttl(services: Services, *, dry_run: bool) -> int:
    ending: dict[bytes, list[tuple[Record, Stored]]] = {}
    async for found in all_records(services):
        stored = record.unpack(services.codec, found.data, expected_id=found.id)
        if not stored.is_tombstone and await reading.is_over(services, stored):
            ending.setdefault(stored.tree, []).append((found, stored))
    if dry_run:
        return sum(map(len, ending.values()))
    return sum([len(await bury_all(services, tree, of_tree, BY_TTL)) for tree, of_tree in ending.items()])


async def _forget_expired(services: Services, *, keep_undoable: bool) -> None:
    """Drops the bytes kept for undoing. From here on, these expiries are final. With `keep_undoable` only those that undoing
    would not bring back, as their TTL is over."""
    kept: dict[bytes, list[RowWrite]] = {}
    now = services.now_us()
    for key, row in await services.backend.scan(rows.EXPIRED):
        if keep_undoable:
            original = record.unpack(services.codec, rows.content(key, row), expected_id=key.key)
            if not original.is_expired(now):
                continue
        kept.setdefault(key.tree, []).append(RowWrite(key, None, row.version))
    for tree, writes in kept.items():
        for start in range(0, len(writes), BATCH):
            await _drop(services, tree, writes[start : start + BATCH])


async def _drop(services: Services, tree: bytes, writes: list[RowWrite]) -> None:
    """Together; or, if somebody else has undone or dropped one of them, one by one."""
    try:
        await services.backend.commit(Commit(tree=tree, rows=writes))
    except CommitConflict:
        if len(writes) > 1:
            for write in writes:
                await _drop(services, tree, [write])


Heads = dict[RowKey, tuple[int, rows.Head]]


async def _listed(services: Services) -> tuple[list[RunInfo], list[BlobInfo], Heads]:
    runs: list[RunInfo] = []
    while page := await services.backend.page_runs((runs[-1].log, runs[-1].first) if runs else None, PAGE):
        runs += page
    blobs: list[BlobInfo] = []
    while page_of_blobs := await services.backend.page_blobs(blobs[-1].hash if blobs else None, PAGE):
        blobs += page_of_blobs
    return runs, blobs, await _heads(services)


async def _heads(services: Services) -> Heads:
    return {key: (row.version, rows.unpack_head(key, row)) for key, row in await services.backend.scan(rows.HEAD)}


@dataclass(slots=True)
class _Tree:
    """What was found of a tree."""

    is_alive: bool = False
    tombstones: dict[bytes, tuple[Record, Stored]] = field(default_factory=dict)


async def _mark(
    services: Services, marks: pure.Marks, heads: Heads, *, dry_run: bool
) -> tuple[dict[bytes, _Tree], Heads]:
    """Marks what live records refer to. Gives the trees, and the heads as they were when the last record was marked: who
    finds them unchanged later knows that nothing was saved since."""
    trees: dict[bytes, _Tree] = {}
    now = services.now_us()
    reach = Reach(snapshots.loader(services))

    async def mark(found: Record) -> None:
        stored = record.unpack(services.codec, found.data, expected_id=found.id)
        tree = trees.setdefault(stored.tree, _Tree())
        if dry_run and not stored.is_tombstone and await reading.is_over(services, stored):  # as it will be
            found = found._replace(data=record.pack_tombstone(services.codec, stored, now, BY_TTL))
            stored = record.unpack(services.codec, found.data)
        if stored.is_tombstone:
            tree.tombstones[stored.id] = (found, stored)
        else:
            tree.is_alive = True
            await _mark_contents(marks, reach, stored)

    async for found in all_records(services):
        await mark(found)
    heads_now = await _heads(services)
    for key, (version, _) in heads_now.items():
        known_version, known_head = heads.get(key, (0, rows.Head(None, 0)))
        if version != known_version:
            for found in await services.backend.session_records(key.key):
                if found.sequence <= known_head.sequence:
                    break
                await mark(found)
    if not dry_run:
        await _mark_undoable(services, marks, reach, trees)
    marks.add((), reach.everything())
    return trees, heads_now


async def _mark_contents(marks: pure.Marks, reach: Reach, stored: Stored) -> None:
    """What a live checkpoint refers to; its files are gathered in `reach`."""
    marks.mark(stored.manifest())
    reference = snapshots.reference_of(stored)
    if reference is not None:
        await reach.learn(reference)


async def _mark_undoable(services: Services, marks: pure.Marks, reach: Reach, trees: dict[bytes, _Tree]) -> None:
    """Marks what has expired since step 1, and can still be undone. What is left in `trees` then is final.

    A tombstone has a row for as long as it can be undone. One that has none and has not changed since it was met is
    final; one that has changed was undone meanwhile, and perhaps expired again: that is looked at once more.
    """
    doubtful = {id_: found.data for tree in trees.values() for id_, (found, _) in tree.tombstones.items()}
    while True:
        for key, row in await services.backend.scan(rows.EXPIRED):
            original = record.unpack(services.codec, rows.content(key, row), expected_id=key.key)
            await _mark_contents(marks, reach, original)
            tree = trees.setdefault(original.tree, _Tree())
            tree.is_alive = True
            tree.tombstones.pop(original.id, None)
            doubtful.pop(original.id, None)
        changed: dict[bytes, bytes] = {}
        for found in [one for one in await _records(services, list(doubtful)) if one.data != doubtful[one.id]]:
            stored = record.unpack(services.codec, found.data, expected_id=found.id)
            trees[stored.tree].is_alive = True
            trees[stored.tree].tombstones.pop(stored.id, None)
            if stored.is_tombstone:
                changed[stored.id] = found.data
            else:
                await _mark_contents(marks, reach, stored)
        if not changed:
            return
        doubtful = changed


async def _records(services: Services, wanted: list[bytes]) -> list[Record]:
    pages = [await services.backend.records(wanted[at : at + PAGE]) for at in range(0, len(wanted), PAGE)]
    return [found for page in pages for found in page if found is not None]


async def _trim(services: Services, run: RunInfo, live: list[tuple[int, int]]) -> RunDelete | None:
    [found] = await services.backend.runs([Span(run.log, run.first, run.first + run.length)])
    if len(found) != 1 or (found[0].first, found[0].length) != (run.first, run.length):
        return None  # sealed meanwhile
    return pure.trimmed(run.log, found[0], live)


async def _remove_trees(
    services: Services, trees: dict[bytes, _Tree], heads: Heads, *, dry_run: bool
) -> tuple[int, int]:
    """Removes the trees that have nothing but tombstones and graves: these, their heads and their sessions. A tree in
    which somebody holds a lease stays: its holder may save to it, and must not find the lease gone."""
    count = size = 0
    for tree, found in (trees | _never_saved_to(trees, heads)).items():
        of_tree = [key for key in heads if key.tree == tree]
        leases = [held for key in of_tree if (held := heads[key][1].lease) is not None]
        if found.is_alive or any(leasing.is_alive(services, held) for held in leases):
            continue
        graves = dict(await services.backend.scan(rows.GRAVES, tree=tree))
        writes = [RowWrite(key, None, heads[key][0]) for key in of_tree]
        session_keys = [RowKey(rows.SESSION, key.key) for key in of_tree]
        for key, row in zip(session_keys, await services.backend.rows(session_keys), strict=True):
            if row is not None:
                writes.append(RowWrite(key, None, row.version))
        writes += packs.removal(tree, graves)
        deletes = [(record.id, record.data) for record, _ in found.tombstones.values()]
        if not dry_run:
            try:
                await services.backend.commit(Commit(tree=tree, rows=writes, delete_records=deletes))
            except CommitConflict:
                continue  # somebody saves to it again: it stays
            for key in of_tree:
                services.memory.drop(key.key)
        count += len(deletes) + packs.count(tree, graves)
        size += sum(len(data) for _, data in deletes) + sum(len(row.value) for row in graves.values())
    return count, size


def _never_saved_to(trees: dict[bytes, _Tree], heads: Heads) -> dict[bytes, _Tree]:
    """The trees of sessions that were leased, and nothing more. Without records, and yet with a number given out, a head
    is damage: `verify` is to find it."""
    return {key.tree: _Tree() for key, (_, head) in heads.items() if key.tree not in trees and head.sequence == 0}


async def _pack_tombstones(services: Services, trees: dict[bytes, _Tree], *, dry_run: bool) -> tuple[int, int]:
    count = size = 0
    for tree, found in trees.items():
        if found.is_alive and found.tombstones:
            moved, freed = await burying.bury(services, tree, list(found.tombstones.values()), dry_run=dry_run)
            count += moved
            size += freed
    return count, size
