"""Plain commits (`backends/plain_commits.py`) for `scripts/save_all.lua`: those that have nothing in common are one call. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.backends.plain_commits import is_plain
from holdfast.backends.port import Commit, CommitConflict, RunWrite
from holdfast.backends.redis import commit as commits
from holdfast.backends.redis import layout
from holdfast.backends.redis.calls import NotReplicatedError
from holdfast.errors import StoreError

MOST_TOGETHER = 64  # the server does nothing else meanwhile
ALL_DONE = 0
_ROW, _RECORD = 1, 2


def groups(batch: Sequence[Commit]) -> Iterator[tuple[bool, list[Commit]]]:
    """The commits in their order: plain ones of one row that go together, with True, and every other one by itself."""
    group: list[Commit] = []
    touched: set[object] = set()  # by those of the group: trees, ids, sessions, logs
    space = ""
    for commit in batch:
        record, rows = commit.record, commit.rows
        if record is None or not is_plain(commit) or len(rows) > 1 or rows[0].key.tree != commit.tree:
            if group:
                yield True, group
                group, touched = [], set()
            yield False, [commit]
            continue
        touches: set[object] = {commit.tree, record.id, record.session}
        if commit.runs:
            touches.update(run.log for run in commit.runs)
        if not group:
            space = rows[0].key.space
        elif rows[0].key.space != space or len(group) == MOST_TOGETHER or not touched.isdisjoint(touches):
            yield True, group
            group, touched, space = [], set(), rows[0].key.space
        group.append(commit)
        touched |= touches
    if group:
        yield True, group


def asked(group: Sequence[Commit]) -> list[bytes | int]:
    """What `save_all.lua` is asked for these."""
    words: list[bytes | int] = [group[0].rows[0].key.space.encode()]
    for commit in group:
        record, runs, (key, value, expect, was) = commit.record, commit.runs, commit.rows[0]
        assert record is not None
        assert value is not None
        words += (
            record.id,
            record.session,
            record.sequence,
            (layout.spans_of(record.spans) + b":" if record.spans else b":") + record.data,
            layout.place(key),
            b"%d:%b" % (expect, was or b""),
            (0 if was is None else 1) if record.expires_at_us is None else _with_end(record.expires_at_us, was),
            b"%d:%b" % (expect + 1, value),
            len(runs),
        )
        for run in runs:
            words += _run(run)
    return words


def outcomes(group: Sequence[Commit], answer: Any, location: str) -> list[BaseException | None]:
    """What the script's answer says of these."""
    if answer == ALL_DONE:
        return [None] * len(group)
    if isinstance(answer, NotReplicatedError):
        unsure = NotReplicatedError(answer.confirmed, answer.wanted, commits.DONE)
        return [
            refused or commits.outcome(commit, unsure, location)
            for commit, refused in zip(group, outcomes(group, answer.answer, location), strict=True)
        ]
    if isinstance(answer, list):
        return [_refusal(commit, reason) if reason else None for commit, reason in zip(group, answer, strict=True)]
    return [commits.outcome(commit, answer, location) for commit in group]


def _with_end(expires_at_us: int, was: bytes | None) -> bytes:
    return b"%d;%d" % (was is not None, expires_at_us)


def _run(run: RunWrite) -> tuple[bytes | int, ...]:
    return run.log, run.first, b"%d:%d" % (run.first, run.length), run.data


def _refusal(commit: Commit, reason: int) -> CommitConflict | StoreError:
    assert commit.record is not None
    if reason == _ROW:
        return CommitConflict("row", commit.rows[0].key)
    if reason == _RECORD:
        return CommitConflict("record", commit.record.id)
    return CommitConflict("run", commit.runs[reason - _RECORD - 1].log)
