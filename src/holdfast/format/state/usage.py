"""Storage by owner: segments by their elements, blobs by their references. Pure; reads no state.

The bytes of a segment are divided evenly among its elements. Shares are differences of one running
sum of whole numbers, so that the parts always add up to the stored sizes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from holdfast.backends.port import BlobInfo, SegmentInfo
from holdfast.format.state import reachable
from holdfast.format.state.reachable import MarkSet


class LogBytes:
    """The bytes of any range of a log."""

    def __init__(self, segments: Sequence[SegmentInfo]) -> None:
        """Take the `segments` of one log, in order."""
        self._segments = segments
        self._firsts = [segment.first for segment in segments]
        self._before = [0]
        for segment in segments:
            self._before.append(self._before[-1] + segment.size)

    @property
    def total(self) -> int:
        return self._before[-1]

    def measure(self, first: int, end: int) -> int:
        return self._size_up_to(end) - self._size_up_to(first)

    def _size_up_to(self, position: int) -> int:
        at = bisect_right(self._firsts, position) - 1
        if at < 0:
            return 0
        segment = self._segments[at]
        within = min(position - segment.first, segment.length)
        return self._before[at] + segment.size * within // max(segment.length, 1)  # 0 in a damaged store


class Shares:
    """The bytes that owners (sessions, by number) refer to: alone, together with others, or not at all."""

    def __init__(self, owners: int) -> None:
        self.alone = [0] * owners
        self.referred = [0] * owners  # alone or together with others
        self.shared = 0  # by two or more, counted once
        self.unused = 0

    def add_segments(self, segments: Sequence[SegmentInfo], marks: Sequence[MarkSet]) -> None:
        """Add segments; `marks` are by owner."""
        owners: dict[int, list[int]] = {}
        for owner, of_owner in enumerate(marks):
            for log in of_owner.logs():
                owners.setdefault(log, []).append(owner)
        for log, of_log in _group_by_log(segments):
            sizes = LogBytes(of_log)
            self._add_log(sizes, {owner: marks[owner].merged_spans(log) for owner in owners.get(log, ())})

    def _add_log(self, sizes: LogBytes, stretches: dict[int, list[tuple[int, int]]]) -> None:
        turns: list[tuple[int, int, int]] = []  # (position, +1 begins or -1 ends, owner)
        for owner, of_owner in stretches.items():
            for first, end in of_owner:
                turns += ((first, 1, owner), (end, -1, owner))
                self.referred[owner] += sizes.measure(first, end)
        used = 0
        present: set[int] = set()
        since = 0
        for position, change, owner in sorted(turns):
            if present and position > since:
                size = sizes.measure(since, position)
                used += size
                if len(present) == 1:
                    self.alone[next(iter(present))] += size
                else:
                    self.shared += size
            since = position
            if change > 0:
                present.add(owner)
            else:
                present.discard(owner)
        self.unused += sizes.total - used

    def add_blobs(self, blobs: Iterable[BlobInfo], marks: Sequence[MarkSet]) -> None:
        owners: dict[bytes, list[int]] = {}
        for owner, of_owner in enumerate(marks):
            for hash_ in of_owner.blobs:
                owners.setdefault(hash_, []).append(owner)
        for blob in blobs:
            of_blob = owners.get(blob.hash, [])
            for owner in of_blob:
                self.referred[owner] += blob.size
            if len(of_blob) == 1:
                self.alone[of_blob[0]] += blob.size
            elif of_blob:
                self.shared += blob.size
            else:
                self.unused += blob.size


def estimate_remaining(segments: Iterable[SegmentInfo], blobs: Iterable[BlobInfo], marks: MarkSet) -> int:
    """Return about how many bytes of segments and blobs remain after all unmarked ones are collected.

    A segment that would be trimmed counts with its share, as if its elements were of equal size.
    """
    left = sum(blob.size for blob in blobs if blob.hash in marks.blobs)
    for segment in segments:
        live = marks.live_parts(segment)
        if live and reachable.needs_trimming(segment, live):
            left += segment.size * sum(end - first for first, end in live) // segment.length
        elif live:
            left += segment.size
    return left


def _group_by_log(segments: Iterable[SegmentInfo]) -> Iterable[tuple[int, list[SegmentInfo]]]:
    of_log: list[SegmentInfo] = []
    for segment in segments:
        if of_log and of_log[-1].log != segment.log:
            yield of_log[0].log, of_log
            of_log = []
        of_log.append(segment)
    if of_log:
        yield of_log[0].log, of_log
