"""A survey for `retain` and `du`: one pass over all records, segments and blobs, without states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.backends.port import BlobInfo, SegmentInfo, Span, Usage
from holdfast.format.rows import head
from holdfast.format.state import manifest as manifests
from holdfast.format.state.record import StoredRecord
from holdfast.operations import snapshot_deltas, snapshot_read
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
    segments: list[SegmentInfo] = field(default_factory=list)
    blobs: list[BlobInfo] = field(default_factory=list)
    _reach: SnapshotReachability | None = None
    _made_from: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)  # of blobs that are stored as deltas

    def blobs_of(self, live: Iterable[LiveRecord]) -> set[bytes]:
        """Return every blob that these refer to, including those of their files."""
        live = list(live)
        found = {hash_ for one in live for hash_ in one.blobs}
        return found | self.files_of(live)

    def files_of(self, live: Iterable[LiveRecord]) -> set[bytes]:
        """Return the blobs of these checkpoints' files."""
        if self._reach is None:
            return set()
        found = set(self._reach.blobs({one.workspace for one in live if one.workspace is not None}))
        found.update(*(self._made_from[hash_] for hash_ in found & self._made_from.keys()))
        return found


async def survey(ctx: StoreContext, progress: Callable[[int, int], None] | None = None) -> StoreScan:
    """Return a survey of the store.

    `progress` is called now and then with the number of records read, and of all records.
    """
    reach = SnapshotReachability(snapshot_read.loader(ctx))
    usage = await ctx.backend.usage()
    found = StoreScan(usage, _reach=reach)
    read = 0
    async for page, over in unpacked_pages(ctx):
        for one, stored in page:
            read += 1
            if progress is not None and read % PAGE == 0:
                progress(read, max(read, usage.records))
            if stored.is_tombstone:
                found.tombstones[stored.session] = found.tombstones.get(stored.session, 0) + len(one.data)
            elif stored.id in over:
                found.ended_bytes += len(one.data)
                found.ended += 1
            else:
                live = _live(stored, len(one.data))
                found.live.append(live)
                if live.workspace is not None:
                    await reach.learn(live.workspace)
    await _list_undoable(ctx, found)
    segments, blobs = found.segments, found.blobs
    while page_of_runs := await ctx.backend.page_segments(
        (segments[-1].log, segments[-1].first) if segments else None, PAGE
    ):
        segments += page_of_runs
    while page_of_blobs := await ctx.backend.page_blobs(blobs[-1].hash if blobs else None, PAGE):
        blobs += page_of_blobs
    found._made_from = await snapshot_deltas.made_from(ctx, reach.everything(), {blob.hash for blob in blobs})
    return found


async def _list_undoable(ctx: StoreContext, found: StoreScan) -> None:
    after: bytes | None = None
    while page := await ctx.backend.scan(head.EXPIRED, after=after, limit=ROWS_AT_ONCE):
        found.undoable_bytes += sum(len(row.value) for _, row in page)
        after = page[-1][0].key


def _live(stored: StoredRecord, size: int) -> LiveRecord:
    spans, blobs = manifests.references(stored.body)
    return LiveRecord(
        id=stored.id,
        tree=stored.tree,
        session=stored.session,
        sequence=stored.sequence,
        agent_id=stored.header["agent"],
        created_at_us=stored.header["at"],
        size=size,
        spans=tuple(spans),
        blobs=tuple(blobs),
        workspace=snapshot_read.reference_of(stored),
    )
