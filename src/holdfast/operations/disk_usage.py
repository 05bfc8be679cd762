"""du: storage by session and by kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from holdfast.errors import CheckpointNotFoundError
from holdfast.format.state.reachable import MarkSet
from holdfast.format.state.usage import Shares
from holdfast.model.listing import DamagedCheckpoint
from holdfast.model.reports import SessionUsage, StoreUsage
from holdfast.operations.context import StoreContext
from holdfast.operations.store_scan import LiveRecord, StoreScan, scan_store


async def du(
    ctx: StoreContext,
    session_id: str | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    damaged: list[DamagedCheckpoint] | None = None,
) -> StoreUsage:
    """Return the space that the store takes; with `session_id`, `sessions` has only that one.

    No state is read. A damaged checkpoint raises its error, or is added to `damaged` if that is
    given: what only it refers to then counts as unused, and its record as overhead.
    """
    parts: dict[str, _SessionParts] = {}

    def count(live: LiveRecord) -> None:
        parts.setdefault(live.session, _SessionParts()).add(live)

    found = await scan_store(ctx, progress, damaged, each=count)
    report = _report(found, parts)
    if session_id is None:
        return report
    [*of_session] = (session for session in report.sessions if session.session_id == session_id)
    if not of_session:
        raise CheckpointNotFoundError(f"there is no session {session_id!r:.200}. `sessions` lists those that are there")
    return _with_sessions(report, of_session)


@dataclass(slots=True)
class _SessionParts:
    """What the live checkpoints of a session refer to, each part once."""

    checkpoints: int = 0
    record_bytes: int = 0
    marks: MarkSet = field(default_factory=MarkSet)
    blobs: set[bytes] = field(default_factory=set)  # of states
    snapshots: set[str] = field(default_factory=set)

    def add(self, live: LiveRecord) -> None:
        self.checkpoints += 1
        self.record_bytes += live.size
        self.marks.add(live.spans, ())
        self.blobs.update(live.blobs)
        if live.workspace is not None:
            self.snapshots.add(live.workspace)


def _report(found: StoreScan, parts: dict[str, _SessionParts]) -> StoreUsage:
    names = sorted(parts.keys() | found.tombstones.keys())
    of_session = [parts.get(name) or _SessionParts() for name in names]
    for item in of_session:
        item.marks.add((), item.blobs | found.files_of_snapshots(item.snapshots))
    marks = [item.marks for item in of_session]
    shares = Shares(len(names))
    shares.add_segments(found.segments, marks)
    unused_runs = shares.unused
    shares.add_blobs(found.blobs, marks)
    of_states = set[bytes]().union(*(item.blobs for item in of_session))
    of_files = found.files_of_snapshots(set[str]().union(*(item.snapshots for item in of_session))) - of_states
    sessions = [
        SessionUsage(
            session_id=name,
            checkpoints=item.checkpoints,
            record_bytes=item.record_bytes,
            tombstone_bytes=found.tombstones.get(name, 0),
            exclusive_bytes=item.record_bytes + shares.alone[number],
            shared_bytes=shares.referred[number] - shares.alone[number],
        )
        for number, (name, item) in enumerate(zip(names, of_session, strict=True))
    ]
    kinds = {
        "record_bytes": sum(item.record_bytes for item in of_session) + found.ended_bytes,
        "tombstone_bytes": sum(found.tombstones.values()),
        "segment_bytes": sum(segment.size for segment in found.segments),
        "blob_bytes": sum(blob.size for blob in found.blobs),
        "row_bytes": found.usage.row_bytes,
    }
    state_blobs = sum(blob.size for blob in found.blobs if blob.hash in of_states)
    counted = sum(kinds.values())
    total = max(found.usage.total_bytes, counted)  # less only after a concurrent write
    return StoreUsage(
        sessions=tuple(
            sorted(sessions, key=lambda session: session.exclusive_bytes + session.shared_bytes, reverse=True)
        ),
        total_bytes=total,
        **kinds,
        overhead_bytes=total - counted,
        state_bytes=kinds["segment_bytes"] - unused_runs + state_blobs,
        file_bytes=sum(blob.size for blob in found.blobs if blob.hash in of_files),
        shared_bytes=shares.shared,
        unused_bytes=shares.unused + found.ended_bytes + found.undoable_bytes,
        unused_row_bytes=found.undoable_bytes,
    )


def _with_sessions(report: StoreUsage, sessions: list[SessionUsage]) -> StoreUsage:
    return replace(report, sessions=tuple(sessions))
