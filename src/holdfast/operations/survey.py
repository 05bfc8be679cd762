"""A survey: one pass over all records, runs and blobs of a store, without any state. What `retain` and `du` begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.backends.port import BlobInfo, RunInfo, Span, Usage
from holdfast.objects import manifest as manifests
from holdfast.objects import record, rows
from holdfast.objects.record import Stored
from holdfast.operations import deltas, reading, snapshots
from holdfast.operations.inspect import all_records
from holdfast.operations.reach import Reach
from holdfast.operations.services import Services

PAGE = 1000
ROWS_AT_ONCE = 200


class Live(NamedTuple):
    """A live checkpoint: what it is, and what it refers to."""

    id: bytes
    tree: bytes
    session: str
    sequence: int
    agent_id: str
    created_at_us: int
    size: int  # of its record
    spans: tuple[Span, ...]
    blobs: tuple[bytes, ...]
    workspace: str | None  # the snapshot of its directory, if it has one of ours


@dataclass(slots=True)
class Survey:
    """What a store holds. Runs and blobs are listed after the records: what a checkpoint refers to is among them, or was
    replaced by something that covers it."""

    usage: Usage
    live: list[Live] = field(default_factory=list)
    tombstones: dict[str, int] = field(default_factory=dict)  # bytes, by session
    ended_bytes: int = 0  # of records whose time to live is over
    ended: int = 0  # how many these are
    undoable_bytes: int = 0  # of the rows that keep expired records
    runs: list[RunInfo] = field(default_factory=list)
    blobs: list[BlobInfo] = field(default_factory=list)
    _reach: Reach | None = None
    _made_from: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)  # of blobs that are stored as differences

    def blobs_of(self, live: Iterable[Live]) -> set[bytes]:
        """Every blob that these refer to, those of their files among them."""
        live = list(live)
        found = {hash_ for one in live for hash_ in one.blobs}
        return found | self.files_of(live)

    def files_of(self, live: Iterable[Live]) -> set[bytes]:
        """The blobs of these checkpoints' files."""
        if self._reach is None:
            return set()
        found = set(self._reach.blobs({one.workspace for one in live if one.workspace is not None}))
        found.update(*(self._made_from[hash_] for hash_ in found & self._made_from.keys()))
        return found


async def survey(services: Services, progress: Callable[[int, int], None] | None = None) -> Survey:
    """`progress` is called now and then with how many records were read, and how many there are."""
    reach = Reach(snapshots.loader(services))
    usage = await services.backend.usage()
    found = Survey(usage, _reach=reach)
    read = 0
    async for one in all_records(services):
        read += 1
        if progress is not None and read % PAGE == 0:
            progress(read, max(read, usage.records))
        stored = record.unpack(services.codec, one.data, expected_id=one.id)
        if stored.is_tombstone:
            found.tombstones[stored.session] = found.tombstones.get(stored.session, 0) + len(one.data)
        elif await reading.is_over(services, stored):
            found.ended_bytes += len(one.data)
            found.ended += 1
        else:
            live = _live(stored, len(one.data))
            found.live.append(live)
            if live.workspace is not None:
                await reach.learn(live.workspace)
    await _list_undoable(services, found)
    runs, blobs = found.runs, found.blobs
    while page := await services.backend.page_runs((runs[-1].log, runs[-1].first) if runs else None, PAGE):
        runs += page
    while page_of_blobs := await services.backend.page_blobs(blobs[-1].hash if blobs else None, PAGE):
        blobs += page_of_blobs
    found._made_from = await deltas.made_from(services, reach.everything(), {blob.hash for blob in blobs})
    return found


async def _list_undoable(services: Services, found: Survey) -> None:
    after: bytes | None = None
    while page := await services.backend.scan(rows.EXPIRED, after=after, limit=ROWS_AT_ONCE):
        found.undoable_bytes += sum(len(row.value) for _, row in page)
        after = page[-1][0].key


def _live(stored: Stored, size: int) -> Live:
    spans, blobs = manifests.references(stored.body)
    return Live(
        id=stored.id,
        tree=stored.tree,
        session=stored.session,
        sequence=stored.sequence,
        agent_id=stored.header["agent"],
        created_at_us=stored.header["at"],
        size=size,
        spans=tuple(spans),
        blobs=tuple(blobs),
        workspace=snapshots.reference_of(stored),
    )
