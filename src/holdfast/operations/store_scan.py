"""A survey for `retain` and `du`: one pass over all records, segments and blobs, without states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.backends.port import BlobInfo, SegmentInfo, Span, Usage
from holdfast.errors import CorruptError
from holdfast.format.rows import head
from holdfast.format.state import manifest as manifests
from holdfast.format.state.record import StoredRecord
from holdfast.model.ids import to_text
from holdfast.model.listing import DamagedCheckpoint
from holdfast.operations import snapshot_deltas, snapshot_read
from holdfast.operations.blob_addresses import listed_hashes, resolve_hashes
from holdfast.operations.context import StoreContext
from holdfast.operations.record_pages import unpacked_pages
from holdfast.operations.snapshot_reachability import SnapshotReachability

PAGE = 1000
ROWS_AT_ONCE = 200


class LiveRecord(NamedTuple):
    """A live checkpoint and its references."""

    id: bytes
    tree: bytes
    session: str
    sequence: int
    agent_id: str
    created_at_us: int
    size: int  # of its record
    spans: tuple[Span, ...]
    blobs: tuple[bytes, ...]
    is_message: bool
    workspace: str | None  # the holdfast snapshot of its directory, if it has one


@dataclass(slots=True)
class StoreScan:
    """The contents of a store.

    Segments and blobs are listed after the records: the references of a checkpoint are among them,
    or were replaced by segments that cover them.
    """

    usage: Usage
    live: list[LiveRecord] = field(default_factory=list)
    tombstones: dict[str, int] = field(default_factory=dict)  # bytes, by session
    ended_bytes: int = 0  # of records whose time to live is over
    ended: int = 0  # how many these are
    undoable_bytes: int = 0  # of the rows that keep expired records
    damaged: list[DamagedCheckpoint] | None = None  # those that can't be read, if they don't end the survey
    segments: list[SegmentInfo] = field(default_factory=list)
    blobs: list[BlobInfo] = field(default_factory=list)
    _reach: SnapshotReachability | None = None
    _made_from: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)  # of blobs that are stored as deltas

    def blobs_of(self, live: Iterable[LiveRecord]) -> set[bytes]:
        """Return every blob that these refer to, including those of their files."""
        live = list(live)
        found = {hash_ for live_record in live for hash_ in live_record.blobs}
        return found | self.files_of(live)

    def files_of(self, live: Iterable[LiveRecord]) -> set[bytes]:
        """Return the blobs of these checkpoints' files."""
        return self.files_of_snapshots(
            {live_record.workspace for live_record in live if live_record.workspace is not None}
        )

    def files_of_snapshots(self, references: set[str]) -> set[bytes]:
        """Return the blobs of these snapshots."""
        if self._reach is None:
            return set()
        found = set(self._reach.blobs(references))
        found.update(*(self._made_from[hash_] for hash_ in found & self._made_from.keys()))
        return found


async def scan_store(
    ctx: StoreContext,
    progress: Callable[[int, int], None] | None = None,
    damaged: list[DamagedCheckpoint] | None = None,
    each: Callable[[LiveRecord], None] | None = None,
) -> StoreScan:
    """Return a survey of the store.

    `each` gets every live checkpoint; without it, they are gathered in `live`, which takes some
    300 bytes for each of them.

    `progress` is called now and then with the number of records read, and of all records. A
    checkpoint or snapshot that can't be read ends the survey, or is added to `damaged` if that is
    given.
    """
    reach = SnapshotReachability(snapshot_read.make_loader(ctx))
    usage = await ctx.backend.usage()
    found = StoreScan(usage, damaged=damaged, _reach=reach)
    keep = each or found.live.append
    read = 0
    names: dict[Any, Any] = {}
    hashes: set[bytes] = set()  # of blobs of states
    async for page, over in unpacked_pages(ctx, damaged):
        for record, stored in page:
            read += 1
            if progress is not None and read % PAGE == 0:
                progress(read, max(read, usage.records))
            if stored.is_tombstone:
                found.tombstones[stored.session] = found.tombstones.get(stored.session, 0) + len(record.data)
            elif stored.id in over:
                found.ended_bytes += len(record.data)
                found.ended += 1
            else:
                live = await _learn(found, _make_live_record(stored, len(record.data), names))
                hashes.update(live.blobs)
                keep(live)
    await _list_undoable(ctx, found)
    segments, blobs = found.segments, found.blobs
    while page_of_runs := await ctx.backend.page_segments(
        (segments[-1].log, segments[-1].first) if segments else None, PAGE
    ):
        segments += page_of_runs
    while page_of_blobs := await ctx.backend.page_blobs(blobs[-1].hash if blobs else None, PAGE):
        blobs += page_of_blobs
    of_files = reach.list_all()
    found._made_from = await snapshot_deltas.find_delta_parts(ctx, of_files, listed_hashes(ctx.backend, blobs))
    made_from = (hash_ for keys in found._made_from.values() for hash_ in keys)
    found.blobs = resolve_hashes(ctx.backend, blobs, [*hashes, *of_files, *made_from])
    return found


async def _learn(found: StoreScan, live: LiveRecord) -> LiveRecord:
    """Learn the snapshot of a checkpoint; one that can't be read is left out."""
    assert found._reach is not None
    try:
        if live.workspace is not None:
            await found._reach.learn(live.workspace)
    except CorruptError as error:
        if found.damaged is None:
            raise
        found.damaged.append(
            DamagedCheckpoint(
                session_id=live.session,
                sequence=live.sequence,
                checkpoint_id=to_text(live.id),
                message=f"its files can't be read: {error}",
            )
        )
        return live._replace(workspace=None)
    return live


async def _list_undoable(ctx: StoreContext, found: StoreScan) -> None:
    after: bytes | None = None
    while page := await ctx.backend.scan(head.EXPIRED, after=after, limit=ROWS_AT_ONCE):
        found.undoable_bytes += sum(len(row.value) for _, row in page)
        after = page[-1][0].key


def _make_live_record(stored: StoredRecord, size: int, names: dict[Any, Any]) -> LiveRecord:
    """Return what a survey keeps of a checkpoint; equal `names` are kept once."""
    spans, blobs = manifests.references(stored.body)
    return LiveRecord(
        id=stored.id,
        tree=names.setdefault(stored.tree, stored.tree),
        session=names.setdefault(stored.session, stored.session),
        sequence=stored.sequence,
        agent_id=names.setdefault(stored.header["agent"], stored.header["agent"]),
        created_at_us=stored.header["at"],
        size=size,
        spans=tuple(spans),
        blobs=tuple(blobs),
        is_message="topic" in stored.header,
        workspace=snapshot_read.reference_of(stored),
    )
