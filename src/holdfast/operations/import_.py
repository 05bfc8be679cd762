"""import: the trees of a bundle into this store, each whole or not at all.

The file is checked to its last byte before anything is written (`bundle_source.py`), and every tree is compared with what
is here. Then a tree is taken over in one commit: its records, heads and sessions. What it holds, if that is more than a
commit should carry, is written before, in commits of `STAGED_BYTES` (`staging.py`): these have checkpoints of their own,
which the tree's commit requires and removes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from holdfast.backends.port import Commit, CommitConflict, RecordWrite, RunWrite, Span
from holdfast.errors import ConflictError, HoldfastError
from holdfast.model import ids
from holdfast.model.bundle import ImportReport, SkippedTree
from holdfast.objects import bundle, record, rows, runs, staged
from holdfast.objects import graves as packing
from holdfast.objects.bundle_layout import Placement, Stretch, Stretches, tails
from holdfast.objects.chain import chain_of
from holdfast.objects.manifest import BlobEntry, ListEntry, Manifest, Tail
from holdfast.objects.record import Stored
from holdfast.operations import snapshots
from holdfast.operations.bundle_compare import Difference, compare
from holdfast.operations.bundle_source import RunReader, Source, TreeIndex, check, file_reach, index_tree
from holdfast.operations.export import Progress
from holdfast.operations.services import Services
from holdfast.operations.staging import STAGED_BYTES, Staging

PAGE = 500
MAX_ATTEMPTS = 5


async def import_bundle(
    services: Services,
    source: Source,
    *,
    skip_conflicts: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    said = progress or (lambda _done, _all: None)
    summary = await check(source, services.codec, lambda done, size: said(done, 2 * size))
    report = ImportReport(dry_run=dry_run, digest=summary.digest.hex(), size=source.size, **summary.counts._asdict())
    skipped: list[SkippedTree] = []
    if dry_run or (not skip_conflicts and len(summary.trees) > 1):
        # All of them are compared before the first one is written: a conflict leaves the store as it was.
        for offset in summary.trees:
            index = await index_tree(source, offset)
            try:
                found = await compare(services, source, index)
            except ConflictError as error:
                if not skip_conflicts:
                    raise
                skipped.append(_skipped(index, error))
            else:
                report = _counted(report, found) if dry_run else report
    for offset in [] if dry_run else summary.trees:
        index = await index_tree(source, offset)
        try:
            report = _counted(report, await _take_over(services, source, index))
        except ConflictError as error:
            if not skip_conflicts:
                raise ConflictError(
                    f"{error}. Of the trees in the file, {report.imported_trees} were imported"
                ) from error
            skipped.append(_skipped(index, error))
        said(source.size + index.end, 2 * source.size)
    said(2 * source.size, 2 * source.size)
    return replace(report, skipped=tuple(skipped))


def _skipped(index: TreeIndex, error: ConflictError) -> SkippedTree:
    return SkippedTree(
        tree_id=ids.to_text(index.entry.tree),
        sessions=tuple(rows.session_name(head.session) for head in index.entry.heads),
        message=str(error),
    )


def _counted(report: ImportReport, found: Difference) -> ImportReport:
    return replace(
        report,
        imported_trees=report.imported_trees + bool(found.new or found.new_graves or found.head_writes),
        imported_sessions=report.imported_sessions + len(found.moved),
        imported=report.imported + len(found.new) + len(found.new_graves),
        already_there=report.already_there + found.there,
    )


# -- taking over -----------------------------------------------------------------------------------------------------


async def _take_over(services: Services, source: Source, index: TreeIndex) -> Difference:
    closed: set[int] = set()
    for _ in range(MAX_ATTEMPTS):
        found = await compare(services, source, index)
        if not (found.new or found.new_graves or found.head_writes or found.row_writes):
            return found
        transfer = _Transfer(services, source, index, found, closed)
        try:
            await transfer.carry_out()
        except CommitConflict as conflict:
            # Somebody was first, or something that we rely on has expired: look again.
            if conflict.kind == "run" and isinstance(conflict.detail, int):
                closed.add(conflict.detail)
            await transfer.undo()
        except HoldfastError:
            await transfer.undo()
            raise
        else:
            for session in found.moved:
                services.memory.drop(session)
            return found
    raise ConflictError(
        f"the tree {ids.to_text(index.entry.tree)} is being written by others at the same time: it was not imported. "
        "Try again"
    )


class _Transfer:
    """One tree on its way into the store."""

    def __init__(
        self, services: Services, source: Source, index: TreeIndex, found: Difference, closed: set[int]
    ) -> None:
        self._closed = closed  # logs that somebody else has gone on in
        self._services = services
        self._source = source
        self._index = index
        self._found = found
        self._placement = Placement()
        self._runs: list[RunWrite] = []
        self._blobs: dict[bytes, bytes] = {}
        self._entries: list[ListEntry] = []  # of the runs
        self._blob_entries: list[BlobEntry] = []
        self._size = 0
        self._staging = Staging(services, index.entry.tree, staged.IMPORTING)

    async def carry_out(self) -> None:
        tree, found = self._index.entry.tree, self._found
        for theirs, ours in found.known:
            self._placement.learn(theirs.manifest(), ours.manifest(), ours.id)
        manifests = [stored.manifest() for _, stored in found.live()]
        await self._write_elements(manifests)
        await self._write_blobs(manifests)
        writes = [self._record_write(data, stored) for data, stored in found.new]
        graves = dict(await self._services.backend.scan(rows.GRAVES, tree=tree)) if found.new_graves else {}
        burial = packing.burial(tree, graves, found.new_graves) if found.new_graves else []
        relied_on = sorted(self._placement.relied_on)
        await self._services.backend.commit(
            Commit(
                tree=tree,
                more_records=writes,
                runs=self._runs,
                blobs=self._blobs,
                rows=[*found.head_writes, *found.row_writes, *burial],
                require=[*self._staging.required, *((id_, record.LIVE) for id_ in relied_on)],
                delete_records=self._staging.held,
            )
        )

    async def undo(self) -> None:
        """Removes what holds what was written so far: the next collection takes it."""
        await self._staging.release()

    def _record_write(self, data: bytes, stored: Stored) -> RecordWrite:
        spans: list[Span] = []
        if not stored.is_tombstone:
            manifest = self._placement.moved(stored.manifest())
            spans = manifest.spans()
            data = record.with_manifest(data, manifest)
        session = rows.session_key(stored.session)
        return RecordWrite(
            stored.id, session, stored.sequence, data, stored.labels(), stored.expires_at_us, spans=spans
        )

    # -- contents ----------------------------------------------------------------------------------------------------

    async def _write_elements(self, manifests: Sequence[Manifest]) -> None:
        wanted: dict[int, Stretches] = {}
        for manifest in manifests:
            for span in manifest.spans():
                wanted.setdefault(span.log, Stretches()).add(span.first, span.end)
        reader = RunReader(self._source, self._index)
        for log in sorted(wanted):
            missing = self._placement.missing(log, wanted[log])
            if not missing:
                continue
            to, at = await self._place_for(log, missing)
            for first, end in missing:
                self._placement.put(log, first, end, to, at)
                async for elements in _regrouped(reader.elements(Span(log, first, end))):
                    await self._add_run(to, at, elements)
                    at += len(elements)
        for tail in (tail for manifest in manifests for tail in tails(manifest)):
            if not self._placement.has_tail(tail):
                self._placement.open(tail.log, await self._new_log())

    async def _place_for(self, log: int, missing: Sequence[Stretch]) -> tuple[int, int]:
        """Where to write what is missing of a log: at the end of ours, if it goes on where ours ends, as a save would;
        otherwise in a new one."""
        [(first, _), *more] = missing
        ours = self._placement.end_of(log, first) if not more else None
        if ours is not None and ours[0] not in self._closed and await self._is_tail(*ours):
            return ours
        return await self._new_log(), 0

    async def _is_tail(self, log: int, end: int) -> bool:
        """Whether the log ends there. That it still does when it is written to is a condition of the commit."""
        [found] = await self._services.backend.runs([Span(log, end - 1, end + 1)])
        beyond = await self._services.backend.page_runs((log, end - 1), 1)
        ends_there = bool(found) and found[-1].first + found[-1].length == end
        return ends_there and not (beyond and beyond[0].log == log)

    async def _new_log(self) -> int:
        [number] = await self._services.logs.take(self._services.backend, 1)
        return number

    async def _add_run(self, log: int, first: int, elements: list[bytes]) -> None:
        chain = chain_of(elements)
        end = first + len(elements)
        data = runs.pack(elements, seal=True)
        self._runs.append(RunWrite(log, first, len(elements), data, tail=first))
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
        # What files have may be stored as differences, which states can't be read from.
        of_states = wanted.keys() - inherited.keys()
        files = file_reach(self._source, self._index)
        for theirs, ours in self._found.known:
            if (reference := snapshots.reference_of(theirs)) is not None:
                await files.learn(reference)
                inherited |= dict.fromkeys(files.blobs([reference]).keys() - of_states, ours.id)
        for _, stored in self._found.live():
            if (reference := snapshots.reference_of(stored)) is not None:
                await files.learn(reference)
                wanted |= {hash_: BlobEntry(hash_, size) for hash_, size in files.blobs([reference]).items()}
        for hash_ in sorted(wanted):
            if hash_ in inherited:
                self._placement.relied_on.add(inherited[hash_])
                continue
            payload = await self._source.payload(self._index.blobs[hash_], bundle.BLOB)
            self._blobs[hash_] = payload[bundle.HASH_BYTES :]
            self._blob_entries.append(wanted[hash_])
            await self._grown(len(payload))

    async def _grown(self, size: int) -> None:
        self._size += size
        if self._size >= STAGED_BYTES:
            await self._stage()

    async def _stage(self) -> None:
        """Commits what has gathered, with a checkpoint that refers to it."""
        await self._staging.put(runs=self._runs, lists=self._entries, blobs=self._blobs, entries=self._blob_entries)
        self._runs, self._blobs, self._entries, self._blob_entries, self._size = [], {}, [], [], 0


async def _regrouped(chunks: AsyncIterator[list[bytes]]) -> AsyncIterator[list[bytes]]:
    """The elements in stretches of at least `SEAL_BYTES`, and a last one that may be shorter."""
    gathered: list[bytes] = []
    size = 0
    async for chunk in chunks:
        for element in chunk:
            gathered.append(element)
            size += len(element)
            if size >= runs.SEAL_BYTES:
                yield gathered
                gathered, size = [], 0
    if gathered:
        yield gathered
