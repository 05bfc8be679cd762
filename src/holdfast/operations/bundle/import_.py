"""import: the trees of a bundle into this store, each whole or not at all.

The file is checked to its last byte before anything is written (`reader.py`), and every tree is
compared with the store (`compare.py`). Then one commit adds a tree: its records, heads and
sessions. Contents beyond the size of a commit are written before, in commits of `STAGED_BYTES`
(`operations/staging.py`): these have checkpoints of their own, which the tree's commit requires and
removes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from holdfast.backends.port import Commit, CommitConflict, RecordWrite, RowWrite, SegmentWrite, Span
from holdfast.errors import ConflictError, HoldfastError
from holdfast.format.bundle import sections
from holdfast.format.bundle.renumber import ElementRange, ElementRanges, Placement, list_tails
from holdfast.format.rows import head as rows
from holdfast.format.rows import packed_tombstones as packing
from holdfast.format.rows import staging
from holdfast.format.rows import topic as topics
from holdfast.format.state import log_segment, record
from holdfast.format.state.list_digest import chain_of
from holdfast.format.state.manifest import BlobEntry, ListEntry, Manifest, Tail
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.transfer_report import ImportReport, SkippedTree
from holdfast.operations import group, publish, snapshot_read
from holdfast.operations.adapter import portable_rows
from holdfast.operations.bundle.compare import Difference, compare
from holdfast.operations.bundle.export import Progress
from holdfast.operations.bundle.reader import (
    BundleReader,
    RunReader,
    TreeIndex,
    check,
    file_reach,
    index_tree,
)
from holdfast.operations.context import StoreContext
from holdfast.operations.imported_snapshot import IsForeign, marks
from holdfast.operations.message_write import feed_of
from holdfast.operations.staging import STAGED_BYTES, Staging

PAGE = 500
MAX_ATTEMPTS = 5


async def import_bundle(
    ctx: StoreContext,
    source: BundleReader,
    *,
    skip_conflicts: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    is_foreign: IsForeign | None = None,
) -> ImportReport:
    """Check the file and add its trees. All its snapshots, or those of `is_foreign`, become imported."""
    report_progress = progress or (lambda _done, _all: None)
    summary = await check(source, ctx.codec, portable_rows(ctx), lambda done, size: report_progress(done, 2 * size))
    report = ImportReport(dry_run=dry_run, digest=summary.digest.hex(), size=source.size, **summary.counts._asdict())
    skipped: list[SkippedTree] = []
    if dry_run or (not skip_conflicts and len(summary.trees) > 1):
        # All of them are compared before the first one is written: a conflict leaves the store
        # unchanged.
        for offset in summary.trees:
            index = await index_tree(source, offset)
            try:
                found = await compare(ctx, source, index)
            except ConflictError as error:
                if not skip_conflicts:
                    raise
                skipped.append(_make_skipped(index, error))
            else:
                report = _count_tree(report, found) if dry_run else report
    for offset in [] if dry_run else summary.trees:
        index = await index_tree(source, offset)
        try:
            report = _count_tree(report, await _take_over(ctx, source, index, is_foreign))
        except ConflictError as error:
            if not skip_conflicts:
                raise ConflictError(
                    f"{error}. Of the trees in the file, {report.imported_trees} were imported"
                ) from error
            skipped.append(_make_skipped(index, error))
        report_progress(source.size + index.end, 2 * source.size)
    report_progress(2 * source.size, 2 * source.size)
    return replace(report, skipped=tuple(skipped))


def _make_skipped(index: TreeIndex, error: ConflictError) -> SkippedTree:
    return SkippedTree(
        tree_id=ids.to_text(index.entry.tree),
        sessions=tuple(rows.session_name(head.session) for head in index.entry.heads),
        message=str(error),
    )


def _count_tree(report: ImportReport, found: Difference) -> ImportReport:
    return replace(
        report,
        imported_trees=report.imported_trees + bool(found.new or found.new_tombstones or found.head_writes),
        imported_sessions=report.imported_sessions + len(found.moved),
        imported=report.imported + len(found.new) + len(found.new_tombstones),
        already_there=report.already_there + found.existing,
    )


# -- transfer --------------------------------------------------------------------------------------------------------


async def _take_over(
    ctx: StoreContext, source: BundleReader, index: TreeIndex, is_foreign: IsForeign | None
) -> Difference:
    closed: set[int] = set()
    for _ in range(MAX_ATTEMPTS):
        found = await compare(ctx, source, index)
        if not (found.new or found.new_tombstones or found.head_writes or found.row_writes):
            return found
        transfer = _Transfer(ctx, source, index, found, closed)
        consumed = {
            topics.names_of_consumed(row_write.key.key)
            for row_write in found.row_writes
            if row_write.key.space == topics.CONSUMED
        }
        for topic in sorted({item.header["topic"] for _, item in found.new if "topic" in item.header}):
            await publish.register(ctx, topic)
        for names in sorted(consumed):
            await group.expect_imports(ctx, group.TopicGroup(*names))
        try:
            await transfer.carry_out(await marks((stored for _, stored in found.list_live()), is_foreign))
        except CommitConflict as conflict:
            # Another writer was first, or a checkpoint that this import relies on has expired:
            # compare again.
            if conflict.kind == "segment" and isinstance(conflict.detail, int):
                closed.add(conflict.detail)
            await transfer.undo()
        except HoldfastError:
            await transfer.undo()
            raise
        else:
            for session in found.moved:
                ctx.memory.drop(session)
            return found
    raise ConflictError(
        f"the tree {ids.to_text(index.entry.tree)} is being written by others at the same time: it was not imported. "
        "Try again"
    )


class _Transfer:
    """One tree during its import."""

    def __init__(
        self, ctx: StoreContext, source: BundleReader, index: TreeIndex, found: Difference, closed: set[int]
    ) -> None:
        self._closed = closed  # logs that another writer has continued
        self._ctx = ctx
        self._source = source
        self._index = index
        self._found = found
        self._placement = Placement()
        self._segments: list[SegmentWrite] = []
        self._blobs: dict[bytes, bytes] = {}
        self._entries: list[ListEntry] = []  # of the segments
        self._blob_entries: list[BlobEntry] = []
        self._size = 0
        self._staging = Staging(ctx, index.entry.tree, staging.IMPORTING)

    async def carry_out(self, marked: Sequence[RowWrite]) -> None:
        """Write the tree. `marked` are the marks of imported snapshots, part of the same commit."""
        tree, found = self._index.entry.tree, self._found
        for theirs, ours in found.known:
            self._placement.learn(theirs.manifest(), ours.manifest(), ours.id)
        manifests = [stored.manifest() for _, stored in found.list_live()]
        await self._write_elements(manifests)
        await self._write_blobs(manifests)
        writes = [self._record_write(data, stored) for data, stored in found.new]
        packed = dict(await self._ctx.backend.scan(rows.GRAVES, tree=tree)) if found.new_tombstones else {}
        tombstones = packing.tombstone_row(tree, packed, found.new_tombstones) if found.new_tombstones else []
        relied_on = sorted(self._placement.relied_on)
        await self._ctx.backend.commit(
            Commit(
                tree=tree,
                more_records=writes,
                segments=self._segments,
                blobs=self._blobs,
                rows=[*found.head_writes, *found.row_writes, *tombstones, *marked],
                require=[*self._staging.required, *((id_, record.LIVE) for id_ in relied_on)],
                delete_records=self._staging.held,
            )
        )

    async def undo(self) -> None:
        """Remove the checkpoints that hold the parts written so far: the next gc collects these."""
        await self._staging.release()

    def _record_write(self, data: bytes, stored: StoredRecord) -> RecordWrite:
        spans: list[Span] = []
        if not stored.is_tombstone:
            manifest = self._placement.move(stored.manifest())
            spans = manifest.spans()
            data = record.with_manifest(data, manifest)
        session = rows.session_key(stored.session)
        return RecordWrite(
            stored.id,
            session,
            stored.sequence,
            data,
            stored.labels(),
            stored.expires_at_us,
            spans=spans,
            feed=feed_of(stored.header),
        )

    # -- contents ----------------------------------------------------------------------------------------------------

    async def _write_elements(self, manifests: Sequence[Manifest]) -> None:
        wanted: dict[int, ElementRanges] = {}
        for manifest in manifests:
            for span in manifest.spans():
                wanted.setdefault(span.log, ElementRanges()).add(span.first, span.end)
        reader = RunReader(self._source, self._index)
        for log in sorted(wanted):
            missing = self._placement.find_missing(log, wanted[log])
            if not missing:
                continue
            to, at = await self._place_for(log, missing)
            for first, end in missing:
                self._placement.put(log, first, end, to, at)
                async for elements in _regroup(reader.elements(Span(log, first, end))):
                    await self._add_run(to, at, elements)
                    at += len(elements)
        for tail in (tail for manifest in manifests for tail in list_tails(manifest)):
            if not self._placement.has_tail(tail):
                self._placement.open(tail.log, await self._new_log())

    async def _place_for(self, log: int, missing: Sequence[ElementRange]) -> tuple[int, int]:
        """Return where to write the missing elements of a log.

        They go to the end of the store's log, if they continue it, as in a save; otherwise to a new
        log.
        """
        [(first, _), *more] = missing
        ours = self._placement.end_of(log, first) if not more else None
        if ours is not None and ours[0] not in self._closed and await self._is_tail(*ours):
            return ours
        return await self._new_log(), 0

    async def _is_tail(self, log: int, end: int) -> bool:
        """Return whether the log ends there. The commit requires that it still does."""
        [found] = await self._ctx.backend.segments([Span(log, end - 1, end + 1)])
        beyond = await self._ctx.backend.page_segments((log, end - 1), 1)
        is_last_segment = bool(found) and found[-1].first + found[-1].length == end
        return is_last_segment and not (beyond and beyond[0].log == log)

    async def _new_log(self) -> int:
        [number] = await self._ctx.logs.take(self._ctx.backend, 1)
        return number

    async def _add_run(self, log: int, first: int, elements: list[bytes]) -> None:
        chain = chain_of(elements)
        end = first + len(elements)
        data = log_segment.pack(elements, seal=True)
        self._segments.append(SegmentWrite(log, first, len(elements), data, tail=first))
        self._entries.append(
            ListEntry(
                path=("execution_state", len(self._entries)),
                length=len(elements),
                size=sum(map(len, elements)),
                digest=chain.digest(),
                has_bytes=True,
                spans=(Span(log, first, end),),
                tail=Tail(log, end, end, 0),
                link=chain.link,
            )
        )
        await self._grown(len(data))

    async def _write_blobs(self, manifests: Sequence[Manifest]) -> None:
        inherited = {blob.hash: ours.id for _, ours in self._found.known for blob in ours.manifest().blobs}
        wanted = {blob.hash: blob for manifest in manifests for blob in manifest.blobs}
        # Contents of files may be stored as deltas, which states can't be read from.
        of_states = wanted.keys() - inherited.keys()
        files = file_reach(self._source, self._index)
        for theirs, ours in self._found.known:
            if (reference := snapshot_read.reference_of(theirs)) is not None:
                await files.learn(reference)
                inherited |= dict.fromkeys(files.blobs([reference]).keys() - of_states, ours.id)
        for _, stored in self._found.list_live():
            if (reference := snapshot_read.reference_of(stored)) is not None:
                await files.learn(reference)
                wanted |= {hash_: BlobEntry(hash_, size) for hash_, size in files.blobs([reference]).items()}
        for hash_ in sorted(wanted):
            if hash_ in inherited:
                self._placement.relied_on.add(inherited[hash_])
                continue
            payload = await self._source.payload(self._index.blobs[hash_], sections.BLOB)
            self._blobs[hash_] = payload[sections.HASH_BYTES :]
            self._blob_entries.append(wanted[hash_])
            await self._grown(len(payload))

    async def _grown(self, size: int) -> None:
        self._size += size
        if self._size >= STAGED_BYTES:
            await self._stage()

    async def _stage(self) -> None:
        """Commit the collected parts, with a checkpoint that refers to them."""
        await self._staging.put(
            segments=self._segments, lists=self._entries, blobs=self._blobs, entries=self._blob_entries
        )
        self._segments, self._blobs, self._entries, self._blob_entries, self._size = [], {}, [], [], 0


async def _regroup(chunks: AsyncIterator[list[bytes]]) -> AsyncIterator[list[bytes]]:
    """Yield the elements in groups of at least `SEAL_BYTES`; the last one may be smaller."""
    gathered: list[bytes] = []
    size = 0
    async for chunk in chunks:
        for element in chunk:
            gathered.append(element)
            size += len(element)
            if size >= log_segment.SEAL_BYTES:
                yield gathered
                gathered, size = [], 0
    if gathered:
        yield gathered
