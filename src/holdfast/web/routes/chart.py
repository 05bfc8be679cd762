"""Figures of a session's steps, for charts: sizes, durations and tokens."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from holdfast.backends.port import SegmentInfo
from holdfast.errors import HoldfastError
from holdfast.format.state import record
from holdfast.format.state.manifest import Manifest
from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.model import ids
from holdfast.model.checkpoint import Checkpoint
from holdfast.web.endpoint import Endpoint
from holdfast.web.request import Ask, Parameter
from holdfast.web.routes.sessions import find_session
from holdfast.web.site import Site

POINT_FIELDS = ("checkpoint_id", "sequence", "step_index", "step_name")
SEGMENTS_AT_ONCE = 1000
MOST_SEGMENTS = 50_000  # with more, the stored size of the steps is not counted


class _Step(NamedTuple):
    checkpoint: Checkpoint
    manifest: Manifest
    record_bytes: int


def show_chart(site: Site, ask: Ask) -> dict[str, Any]:
    """Return figures of the steps on the line of the session's head, evenly chosen."""
    session = find_session(site, ask.path["session"])
    index = site.tree(session.tree_id)
    line = index.line(ids.from_text(session.head.checkpoint_id))[::-1]
    stride = max(len(line) / ask.query["points"], 1.0)
    chosen = [line[int(i * stride)] for i in range(int(len(line) / stride))] if line else []
    if line and line[-1] not in chosen:
        chosen.append(line[-1])
    steps = _read(site, [row.id for row in index.rows(chosen)])
    stored = _stored_sizes(site, steps, stride)
    sizes = [step.manifest.logical_size() for step in steps]
    points = []
    for i, (step, size, whole) in enumerate(zip(steps, sizes, accumulate(sizes), strict=True)):
        checkpoint, is_next = step.checkpoint, i > 0 and stride == 1
        points.append(
            {
                **{name: getattr(checkpoint, name) for name in POINT_FIELDS},
                "created_at": checkpoint_fields(checkpoint)["created_at"],
                "seconds": (checkpoint.created_at - steps[i - 1].checkpoint.created_at).total_seconds()
                if is_next
                else None,
                "logical_bytes": size,
                "grown_bytes": (size - sizes[i - 1] if i else size) if stride == 1 else None,
                "total_bytes": round(whole * stride),
                "stored_bytes": stored[i] if stored else None,
                "tokens": _tokens(checkpoint),
                "failed": bool(checkpoint.metadata.get("failed")),
            }
        )
    return {"session_id": session.session_id, "points": points, "total": len(line)}


def _read(site: Site, wanted: Sequence[bytes]) -> list[_Step]:
    """Return those that can be read."""
    ctx, steps = site.client._ctx, []
    for found in site.run(ctx.backend.records(wanted)):
        try:
            if found is not None:
                stored = record.unpack(ctx.codec, found.data, expected_id=found.id)
                steps.append(_Step(record.checkpoint(ctx.codec, stored), stored.manifest(), len(found.data)))
        except HoldfastError:
            continue
    return steps


def _stored_sizes(site: Site, steps: Sequence[_Step], stride: float) -> list[int] | None:
    """Return, for each step, about what it and all steps before it take together in the store."""
    logs = {span.log for step in steps for span in step.manifest.spans()}
    segments = _segments(site, logs)
    if segments is None:
        return None
    sizes = {log: _LogSizes(found) for log, found in segments.items()}
    blobs: set[bytes] = set()
    found, total = [], 0.0
    for step in steps:
        total += step.record_bytes * stride
        total += sum(sizes[span.log].add(span.first, span.end) for span in step.manifest.spans())
        new = {blob.hash: blob.size for blob in step.manifest.blobs if blob.hash not in blobs}
        blobs |= new.keys()
        total += sum(new.values())
        found.append(round(total))
    return found


class _LogSizes:
    """Counts the bytes of a log's segments, each once."""

    def __init__(self, segments: Iterable[SegmentInfo]) -> None:
        ordered = sorted(segments)
        self._firsts = [segment_info.first for segment_info in ordered]
        self._sums = [0, *accumulate(segment_info.size for segment_info in ordered)]
        self._end: int | None = None

    def add(self, first: int, end: int) -> int:
        """Return the bytes of these elements' segments that were not counted before."""
        start = max(bisect_right(self._firsts, first) - 1, 0) if self._end is None else self._end
        stop = bisect_left(self._firsts, end)
        self._end = max(start, stop)
        return max(self._sums[stop] - self._sums[start], 0)


def _segments(site: Site, logs: Iterable[int]) -> dict[int, list[SegmentInfo]] | None:
    """Return the segments of these logs; None if there are too many."""
    backend = site.client._ctx.backend
    found: dict[int, list[SegmentInfo]] = {}
    count = 0
    for log in sorted(logs):
        found[log] = []
        after = (log, -1)
        while after[0] == log:
            page = site.run(backend.page_segments(after, SEGMENTS_AT_ONCE))
            found[log] += [item for item in page if item.log == log]
            count += len(page)
            if count > MOST_SEGMENTS:
                return None
            if len(page) < SEGMENTS_AT_ONCE:
                break
            after = (page[-1].log, page[-1].first)
    return found


def _tokens(checkpoint: Checkpoint) -> dict[str, float] | None:
    """Return the numbers that the metadata records as usage."""
    usage = checkpoint.metadata.get("usage")
    if not isinstance(usage, dict):
        return None
    return {
        str(name): value
        for name, value in list(usage.items())[:20]
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53
    }


ROUTES = (
    Endpoint(
        "/sessions/{session}/chart",
        show_chart,
        "Figures of the steps that led to the head.",
        (Parameter("points", "number", "At most so many points.", default=200, least=2),),
    ),
)
