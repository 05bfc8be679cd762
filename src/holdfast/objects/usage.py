"""How many bytes belong to whom: runs by their elements, blobs by who refers to them. Pure; no state is read.

The bytes of a run are shared out evenly among its elements. Shares are differences of one running sum of whole numbers,
so that the parts always add up to the stored sizes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from holdfast.backends.port import BlobInfo, RunInfo
from holdfast.objects import collect
from holdfast.objects.collect import Marks


class LogBytes:
    """The bytes of any stretch of a log."""

    def __init__(self, runs: Sequence[RunInfo]) -> None:
        """`runs` of one log, in order."""
        self._runs = runs
        self._firsts = [run.first for run in runs]
        self._before = [0]
        for run in runs:
            self._before.append(self._before[-1] + run.size)

    @property
    def total(self) -> int:
        return self._before[-1]

    def between(self, first: int, end: int) -> int:
        return self._up_to(end) - self._up_to(first)

    def _up_to(self, position: int) -> int:
        at = bisect_right(self._firsts, position) - 1
        if at < 0:
            return 0
        run = self._runs[at]
        within = min(position - run.first, run.length)
        return self._before[at] + run.size * within // run.length


class Shares:
    """What a set of owners (sessions, by their numbers) refers to, in bytes: alone, together with others, nobody."""

    def __init__(self, owners: int) -> None:
        self.alone = [0] * owners
        self.referred = [0] * owners  # alone or together with others
        self.shared = 0  # by two or more, counted once
        self.unused = 0

    def add_runs(self, runs: Sequence[RunInfo], marks: Sequence[Marks]) -> None:
        """`marks` by owner."""
        owners: dict[int, list[int]] = {}
        for owner, of_owner in enumerate(marks):
            for log in of_owner.logs():
                owners.setdefault(log, []).append(owner)
        for log, of_log in _by_log(runs):
            sizes = LogBytes(of_log)
            self._add_log(sizes, {owner: marks[owner].stretches(log) for owner in owners.get(log, ())})

    def _add_log(self, sizes: LogBytes, stretches: dict[int, list[tuple[int, int]]]) -> None:
        turns: list[tuple[int, int, int]] = []  # (position, +1 begins or -1 ends, owner)
        for owner, of_owner in stretches.items():
            for first, end in of_owner:
                turns += ((first, 1, owner), (end, -1, owner))
                self.referred[owner] += sizes.between(first, end)
        used = 0
        present: set[int] = set()
        since = 0
        for position, change, owner in sorted(turns):
            if present and position > since:
                size = sizes.between(since, position)
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

    def add_blobs(self, blobs: Iterable[BlobInfo], marks: Sequence[Marks]) -> None:
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


def left_after_collection(runs: Iterable[RunInfo], blobs: Iterable[BlobInfo], marks: Marks) -> int:
    """About how many bytes of runs and blobs are left once all that is not marked is collected: a run that would be
    trimmed counts with its share, as if its elements were of equal size."""
    left = sum(blob.size for blob in blobs if blob.hash in marks.blobs)
    for run in runs:
        live = marks.live_parts(run)
        if live and collect.needs_trimming(run, live):
            left += run.size * sum(end - first for first, end in live) // run.length
        elif live:
            left += run.size
    return left


def _by_log(runs: Iterable[RunInfo]) -> Iterable[tuple[int, list[RunInfo]]]:
    of_log: list[RunInfo] = []
    for run in runs:
        if of_log and of_log[-1].log != run.log:
            yield of_log[0].log, of_log
            of_log = []
        of_log.append(run)
    if of_log:
        yield of_log[0].log, of_log
