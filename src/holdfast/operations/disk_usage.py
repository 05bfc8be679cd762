"""du: storage by session and by kind."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import CheckpointNotFoundError
from holdfast.format.state.reachable import MarkSet
from holdfast.format.state.usage import Shares
from holdfast.model.reports import SessionUsage, StoreUsage
from holdfast.operations.context import StoreContext
from holdfast.operations.store_scan import LiveRecord, StoreScan, survey


async def du(
    ctx: StoreContext, session_id: str | None = None, *, progress: Callable[[int, int], None] | None = None
) -> StoreUsage:
    """Return the space that the store takes; with `session_id`, `sessions` has only that one.

    No state is read.
    """
    found = await survey(ctx, progress)
    report = _report(found)
    if session_id is None:
        return report
    [*of_session] = (one for one in report.sessions if one.session_id == session_id)
    if not of_session:
        raise CheckpointNotFoundError(f"there is no session {session_id!r:.200}. `sessions` lists those that are there")
    return _with_sessions(report, of_session)


def _report(found: StoreScan) -> StoreUsage:
    names = sorted({live.session for live in found.live} | found.tombstones.keys())
    numbers = {name: number for number, name in enumerate(names)}
    marks = [MarkSet() for _ in names]
    of_session: list[list[LiveRecord]] = [[] for _ in names]
    checkpoints, records = [0] * len(names), [0] * len(names)
    for live in found.live:
        number = numbers[live.session]
        marks[number].add(live.spans, ())
        of_session[number].append(live)
        checkpoints[number] += 1
        records[number] += live.size
    for mark, lives in zip(marks, of_session, strict=True):
        mark.add((), found.blobs_of(lives))
    shares = Shares(len(names))
    shares.add_segments(found.segments, marks)
    unused_runs = shares.unused
    shares.add_blobs(found.blobs, marks)
    of_states = {hash_ for live in found.live for hash_ in live.blobs}
    of_files = found.files_of(found.live) - of_states
    sessions = [
        SessionUsage(
            session_id=name,
            checkpoints=checkpoints[number],
            record_bytes=records[number],
            tombstone_bytes=found.tombstones.get(name, 0),
            exclusive_bytes=records[number] + shares.alone[number],
            shared_bytes=shares.referred[number] - shares.alone[number],
        )
        for name, number in numbers.items()
    ]
    kinds = {
        "record_bytes": sum(records) + found.ended_bytes,
        "tombstone_bytes": sum(found.tombstones.values()),
        "segment_bytes": sum(segment.size for segment in found.segments),
        "blob_bytes": sum(blob.size for blob in found.blobs),
        "row_bytes": found.usage.row_bytes,
    }
    state_blobs = sum(blob.size for blob in found.blobs if blob.hash in of_states)
    counted = sum(kinds.values())
    total = max(found.usage.total_bytes, counted)  # less only after a concurrent write
    return StoreUsage(
        sessions=tuple(sorted(sessions, key=lambda one: one.exclusive_bytes + one.shared_bytes, reverse=True)),
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
    from dataclasses import replace

    return replace(report, sessions=tuple(sessions))
