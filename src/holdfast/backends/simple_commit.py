"""Simple commits: one new record, appends to at most two logs and one changed row.

Messages, which are more new records, may be published with it, and one more row may be put
unconditionally. Nearly every commit is simple; stores behind a network carry these out by a shorter
way than all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter

from holdfast.backends.port import ABSENT, ANY_VERSION, Commit, RowWrite

RUNS = 2
USE_SIMPLE = True
"""The switch of a fast path of ARCHITECTURE.md (`benchmarks/fast_paths.py` measures both ways)."""

# Any other field makes a commit not simple, including fields that are added later.
_others = attrgetter(
    *(
        field.name
        for field in fields(Commit)
        if field.name not in {"tree", "record", "more_records", "segments", "rows"}
    )
)


def is_plain(commit: Commit) -> bool:
    record, segments, rows = commit.record, commit.segments, commit.rows
    if not USE_SIMPLE or record is None or not rows or any(_others(commit)):
        return False
    if record.replaces is not None or any(write.replaces is not None for write in commit.more_records):
        return False
    row = rows[0]
    if row.value is None or row.expect <= ABSENT or (len(rows) > 1 and not _is_unconditional_put(row, rows[1:])):
        return False
    return not segments or (
        len(segments) <= RUNS
        and len({segment.log for segment in segments if segment.first == segment.tail}) == len(segments)
    )


def _is_unconditional_put(row: RowWrite, more: Sequence[RowWrite]) -> bool:
    """Return whether `more` is one other row that is put unconditionally."""
    if len(more) != 1:
        return False
    extra = more[0]
    return extra.value is not None and extra.expect == ANY_VERSION and extra.was is None and extra.key != row.key
