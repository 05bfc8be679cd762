"""Collecting: which stored runs and blobs nothing refers to any more. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable

from holdfast.backends.port import Run, RunDelete, RunInfo, Span
from holdfast.objects import runs
from holdfast.objects.manifest import Manifest

TRIM_BELOW = 0.5  # a run is rewritten without its dead elements once fewer than this share of them is alive


class Marks:
    """What live checkpoints refer to."""

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

    def live_parts(self, run: RunInfo) -> list[tuple[int, int]]:
        """The stretches `[first, end)` of the run's elements that something refers to."""
        end_of_run = run.first + run.length
        stretches = self.stretches(run.log)
        at = max(bisect_right(stretches, (run.first, 1 << 62)) - 1, 0)
        parts = []
        for first, end in stretches[at:]:
            if first >= end_of_run:
                break
            if end > run.first:
                parts.append((max(first, run.first), min(end, end_of_run)))
        return parts

    def stretches(self, log: int) -> list[tuple[int, int]]:
        """The marked spans of a log, merged and in order."""
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


def needs_trimming(run: RunInfo, live: list[tuple[int, int]]) -> bool:
    alive = sum(end - first for first, end in live)
    return alive < TRIM_BELOW * run.length


def trimmed(log: int, run: Run, live: list[tuple[int, int]]) -> RunDelete:
    """The run without its dead elements."""
    pieces = []
    for first, end in live:
        elements = runs.elements(Span(log, first, end), [run])
        seal = sum(map(len, elements)) >= runs.SEAL_BYTES // 8
        pieces.append((first, end - first, runs.pack(elements, seal=seal)))
    return RunDelete(log, run.first, run.length, tuple(pieces))
