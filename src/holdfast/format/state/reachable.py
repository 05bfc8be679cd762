"""The reachable segments and blobs of a store: gc removes all others. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable

from holdfast.backends.port import Segment, SegmentDelete, SegmentInfo, Span
from holdfast.format.state import log_segment
from holdfast.format.state.manifest import Manifest

TRIM_BELOW = 0.5  # a segment is rewritten without its dead elements once fewer than this share of them is alive
END_MARK = log_segment.pack([b""], seal=False)  # no element has an empty encoding
MAX_END_MARK_BYTES = 64  # as stored: a sealed store pads and encrypts it


class MarkSet:
    """The spans and blobs that live checkpoints refer to."""

    def __init__(self) -> None:
        self.blobs: set[bytes] = set()
        self._spans: dict[int, set[tuple[int, int]]] = {}
        self._merged: dict[int, list[tuple[int, int]]] = {}

    def mark(self, manifest: Manifest) -> None:
        self.add(manifest.spans(), [blob.hash for blob in manifest.blobs])

    def add(self, spans: Iterable[Span], blobs: Iterable[bytes]) -> None:
        for span in spans:
            self._spans.setdefault(span.log, set()).add((span.first, span.end))
        self.blobs.update(blobs)
        self._merged.clear()

    def logs(self) -> Collection[int]:
        return self._spans.keys()

    def live_parts(self, segment: SegmentInfo) -> list[tuple[int, int]]:
        """Return the ranges `[first, end)` of the segment's elements that are referred to."""
        end_of_run = segment.first + segment.length
        stretches = self.merged_spans(segment.log)
        at = max(bisect_right(stretches, (segment.first, 1 << 62)) - 1, 0)
        parts = []
        for first, end in stretches[at:]:
            if first >= end_of_run:
                break
            if end > segment.first:
                parts.append((max(first, segment.first), min(end, end_of_run)))
        return parts

    def merged_spans(self, log: int) -> list[tuple[int, int]]:
        """Return the marked spans of a log, merged and in order."""
        merged = self._merged.get(log)
        if merged is None:
            merged = []
            for first, end in sorted(self._spans.get(log, ())):
                if merged and first <= merged[-1][1]:
                    merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
                else:
                    merged.append((first, end))
            self._merged[log] = merged
        return merged


def needs_trimming(segment: SegmentInfo, live: list[tuple[int, int]]) -> bool:
    alive = sum(end - first for first, end in live)
    return alive < TRIM_BELOW * segment.length


def may_be_end_mark(segment: SegmentInfo) -> bool:
    """Return whether a segment may be an end mark, by its size. Its bytes tell."""
    return segment.length == 1 and segment.size <= MAX_END_MARK_BYTES


def delete_segment(segment: SegmentInfo, *, mark_end: bool) -> SegmentDelete:
    """Return the change that removes a segment.

    With `mark_end`, an end mark takes the place of its last element, so the log's tail stays where it is.
    """
    end = segment.first + segment.length
    return SegmentDelete(segment.log, segment.first, segment.length, ((end - 1, 1, END_MARK),) if mark_end else ())


def trim_segment(log: int, segment: Segment, live: list[tuple[int, int]], *, mark_end: bool = False) -> SegmentDelete:
    """Return the change that removes a segment's dead elements; `mark_end` as in `delete_segment`."""
    pieces = []
    for first, end in live:
        elements = log_segment.elements(Span(log, first, end), [segment])
        seal = sum(map(len, elements)) >= log_segment.SEAL_BYTES // 8
        pieces.append((first, end - first, log_segment.pack(elements, seal=seal)))
    last = segment.first + segment.length - 1
    if mark_end and live[-1][1] <= last:
        pieces.append((last, 1, END_MARK))
    return SegmentDelete(log, segment.first, segment.length, tuple(pieces))
