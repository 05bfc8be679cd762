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
    record, runs = commit.record, commit.runs
    if record is None or record.replaces is not None or len(runs) > RUNS or not _are_plain(commit.rows):
        return False
    row = commit.rows[0]
    if row.value is None or row.expect <= ABSENT or any(_others(commit)):
        return False
    return not runs or len({run.log for run in runs if run.first == run.tail}) == len(runs)


def _are_plain(rows: Sequence[RowWrite]) -> bool:
    """Whether it is one row, or one and another one whose write asks for nothing."""
    if len(rows) != 2:
        return len(rows) == 1
    row, beside = rows
    return beside.value is not None and beside.expect == ANY_VERSION and beside.was is None and beside.key != row.key
