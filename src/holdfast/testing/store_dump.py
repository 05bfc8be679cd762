"""The complete content of a store, read through the port and made comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.backends.port import BlockingBackend, Record, Row, RowKey, Segment, Span

PAGE = 500


@dataclass(frozen=True, slots=True)
class StoreDump:
    """The result of `dump`. Two are equal if they hold the same; the times of blobs don't count."""

    records: dict[bytes, Record]
    positions: dict[bytes, int]  # as `changes` gives them
    sessions: dict[bytes, list[tuple[int, bytes]]]  # as the sessions list them: (sequence, id), newest first
    segments: dict[int, list[Segment]]
    blobs: dict[bytes, bytes]
    rows: dict[RowKey, Row]
    written_at_us: dict[bytes, int] = field(default_factory=dict, compare=False)

    def differences(self, other: StoreDump) -> list[str]:
        """Return one line for each difference, times included; [] if nothing differs."""
        lines: list[str] = []
        for kind in ("records", "positions", "sessions", "segments", "blobs", "rows", "written_at_us"):
            ours: dict[Any, Any] = getattr(self, kind)
            theirs: dict[Any, Any] = getattr(other, kind)
            lines += [
                f"{kind}[{key!r:.60}]: {ours.get(key)!r:.120} != {theirs.get(key)!r:.120}"
                for key in [*ours, *(key for key in theirs if key not in ours)]
                if ours.get(key) != theirs.get(key)
            ]
        return lines


def dump(backend: BlockingBackend, spaces: Sequence[str]) -> StoreDump:
    """Read the whole store through the port, with the rows of the given spaces.

    A store can't list its spaces. This is for tests, where a store is small: everything is held in
    memory. Writers must be idle.
    """
    records = _records(backend)
    hashes = _written_at_us(backend)
    return StoreDump(
        records=records,
        positions=_positions(backend),
        sessions={
            session: [(record.sequence, record.id) for record in backend.session_records(session)]
            for session in {record.session for record in records.values()}
        },
        segments=_segments(backend),
        blobs={
            hash_: data
            for hash_, data in zip(hashes, backend.blobs(list(hashes)), strict=True)
            if data is not None
        },
        rows={key: row for space in spaces for key, row in backend.scan(space)},
        written_at_us=hashes,
    )  # fmt: skip


def _records(backend: BlockingBackend) -> dict[bytes, Record]:
    found: dict[bytes, Record] = {}
    after: bytes | None = None
    while page := backend.page_records(after, PAGE):
        found |= {record.id: record for record in page}
        after = page[-1].id
    return found


def _positions(backend: BlockingBackend) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    after = 0
    while page := backend.changes(after, PAGE):
        found |= {record.id: position for position, record in page}
        after = page[-1].position
    return found


def _segments(backend: BlockingBackend) -> dict[int, list[Segment]]:
    ends: dict[int, int] = {}
    after: tuple[int, int] | None = None
    while page := backend.page_segments(after, PAGE):
        for info in page:
            ends[info.log] = max(ends.get(info.log, 0), info.first + info.length)
        after = (page[-1].log, page[-1].first)
    return dict(zip(ends, backend.segments([Span(log, 0, end) for log, end in ends.items()]), strict=True))


def _written_at_us(backend: BlockingBackend) -> dict[bytes, int]:
    times: dict[bytes, int] = {}
    after: bytes | None = None
    while page := backend.page_blobs(after, PAGE):
        times |= {info.hash: info.written_at_us for info in page}
        after = page[-1].hash
    return times
