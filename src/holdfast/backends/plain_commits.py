"""What nearly every commit is: one new record, up to two runs at the ends of their logs, one row that changes, and perhaps one
beside it that is put whatever was there. Stores that are asked over a network carry these out by a shorter way than all
others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter

from holdfast.backends.port import ABSENT, ANY_VERSION, Commit, RowWrite

RUNS = 2

# Whatever else a commit may ask for makes it no plain one, what is added to commits later included.
_others = attrgetter(*(one.name for one in fields(Commit) if one.name not in {"tree", "record", "runs", "rows"}))


def is_plain(commit: Commit) -> bool:
    record, runs, rows = commit.record, commit.runs, commit.rows
    if record is None or record.replaces is not None or not rows or any(_others(commit)):
        return False
    row = rows[0]
    if row.value is None or row.expect <= ABSENT or (len(rows) > 1 and not _is_beside(row, rows[1:])):
        return False
    return not runs or (len(runs) <= RUNS and len({run.log for run in runs if run.first == run.tail}) == len(runs))


def _is_beside(row: RowWrite, more: Sequence[RowWrite]) -> bool:
    """Whether that is one other row, whose write asks for nothing."""
    if len(more) != 1:
        return False
    beside = more[0]
    return beside.value is not None and beside.expect == ANY_VERSION and beside.was is None and beside.key != row.key
