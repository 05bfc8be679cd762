"""gc: ends what has outlived its TTL, and removes what nothing refers to any more. Safe beside writers.

1. Records past their TTL become tombstones. The bytes kept for undoing an expiry are dropped.
2. The runs, blobs and heads that are there now are listed.
3. Every live record marks what it refers to. Whatever was committed meanwhile has moved a head: the sessions whose
   head is not as listed are read again.
4. What was listed in 2 and not marked in 3 is removed, if it is still as listed: a run that was sealed meanwhile, or a
   blob that was written again, is left for the next time.

A checkpoint committed after 3 refers only to new runs and to what its parent refers to; its parent was alive when it
was committed, so it was alive in 3, and marked.
"""

from __future__ import annotations

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
from holdfast.objects import record, rows
from holdfast.objects.record import Stored
from holdfast.operations import inbox, reading, tags
from holdfast.operations.expire import BY_TTL, bury_all
from holdfast.operations.inspect import all_records
from holdfast.operations.services import Services

PAGE = 1000
BATCH = 200


async def collect(services: Services, *, dry_run: bool = False) -> CollectionReport:
    """Removes what can go; with `dry_run` only says what would. What is marked dead by a dry run's TTL is counted."""
    if not dry_run:
        await tags.settle_all(services)
    expired = await _expire_by_ttl(services, dry_run=dry_run)
    if not dry_run:
        await _forget_expired(services)
    runs, blobs, heads = await _listed(services)
    marks = pure.Marks()
    trees = await _mark(services, marks, heads, dry_run=dry_run)

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
        if dead_blobs:
            await services.backend.commit(Commit(tree=STORE, delete_blobs=dead_blobs))
    records, record_bytes = await _bury_trees(services, trees, dry_run=dry_run)
    if not dry_run:
        await inbox.forget(services)
    if not dry_run and (deletes or dead_blobs or records):
        await services.backend.compact()
    return CollectionReport(
        dry_run=dry_run,
        expired_by_ttl=expired,
        records=records,
        runs=len(deletes) - trimmed,
        runs_trimmed=trimmed,
        blobs=len(dead_blobs),
        bytes_freed=freed + record_bytes,
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


async def _forget_expired(services: Services) -> None:
    """Drops the bytes kept for undoing. From here on, these expiries are final."""
    kept: dict[bytes, list[RowWrite]] = {}
    for key, row in await services.backend.scan(rows.EXPIRED):
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


Trees = dict[bytes, list[tuple[Record, Stored]] | None]  # a tree's tombstones; None once it has a live record


async def _mark(services: Services, marks: pure.Marks, heads: Heads, *, dry_run: bool) -> Trees:
    trees: Trees = {}

    async def mark(found: Record) -> None:
        stored = record.unpack(services.codec, found.data, expected_id=found.id)
        if stored.is_tombstone or (dry_run and await reading.is_over(services, stored)):
            tombstones = trees.setdefault(stored.tree, [])
            if tombstones is not None:
                tombstones.append((found, stored))
        else:
            trees[stored.tree] = None
            marks.mark(stored.manifest())

    async for found in all_records(services):
        await mark(found)
    for key, (version, _) in (await _heads(services)).items():
        known_version, known_head = heads.get(key, (0, rows.Head(None, 0)))
        if version != known_version:
            for found in await services.backend.session_records(key.key):
                if found.sequence <= known_head.sequence:
                    break
                await mark(found)
    for key, row in [] if dry_run else await services.backend.scan(rows.EXPIRED):
        # Expired since step 1, and can still be undone.
        original = record.unpack(services.codec, rows.content(key, row), expected_id=key.key)
        marks.mark(original.manifest())
        trees[original.tree] = None
    return trees


async def _trim(services: Services, run: RunInfo, live: list[tuple[int, int]]) -> RunDelete | None:
    [found] = await services.backend.runs([Span(run.log, run.first, run.first + run.length)])
    if len(found) != 1 or (found[0].first, found[0].length) != (run.first, run.length):
        return None  # sealed meanwhile
    return pure.trimmed(run.log, found[0], live)


async def _bury_trees(services: Services, trees: Trees, *, dry_run: bool) -> tuple[int, int]:
    """Removes the trees that have nothing but tombstones: these, their heads and their sessions."""
    count = size = 0
    for tree, tombstones in trees.items():
        if tombstones is None:
            continue
        count += len(tombstones)
        size += sum(len(found.data) for found, _ in tombstones)
        if dry_run:
            continue
        heads = await services.backend.scan(rows.HEAD, tree=tree)
        writes = [RowWrite(key, None, row.version) for key, row in heads]
        session_keys = [RowKey(rows.SESSION, key.key) for key, _ in heads]
        sessions = await services.backend.rows(session_keys)
        writes += [
            RowWrite(key, None, row.version) for key, row in zip(session_keys, sessions, strict=True) if row is not None
        ]
        deletes = [(found.id, found.data) for found, _ in tombstones]
        try:
            await services.backend.commit(Commit(tree=tree, rows=writes, delete_records=deletes))
        except CommitConflict:
            count -= len(tombstones)  # somebody saves to it again: it stays
            continue
        for key, _ in heads:
            services.memory.drop(key.key)
    return count, size
