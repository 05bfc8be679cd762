"""Plain commits (`backends/plain_commits.py`) for `save_batch` in the database (migrations/003_saves_with_a_row_beside.sql).
Anything else is a `Program`."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.plain_commits import RUNS
from holdfast.backends.port import MAX_LOG_ELEMENTS, Commit, CommitConflict
from holdfast.backends.postgres.commit import INDEXED, NOTHING, key_columns, shown

_NO_RUN = (NOTHING, 0, 0)
_NO_ROW = (None,) * 5
_NO_LABELS = (NOTHING, NOTHING, (None,) * 5)


class PlainBatch:
    """A batch of plain commits, ready to be sent; `outcomes` reads what comes back."""

    def __init__(self, commits: Sequence[Commit]) -> None:
        self._commits = commits
        self.ints: list[int] = []
        self.bytes: list[bytes | None] = []
        self.words: list[str] = []
        for commit in commits:
            self._add(commit)

    def outcomes(self, answers: Sequence[int]) -> list[BaseException | None]:
        return [
            _conflict(commit, answer) if answer else None for commit, answer in zip(self._commits, answers, strict=True)
        ]

    def _add(self, commit: Commit) -> None:
        record, row = commit.record, commit.rows[0]
        assert record is not None
        labels = record.labels
        created, step, texts = (
            _NO_LABELS if labels is None else (labels.created_at_us, labels.step_index, shown(labels))
        )
        expires = NOTHING if record.expires_at_us is None else record.expires_at_us
        self.ints += (record.sequence, created, expires, step, row.expect)
        data: list[bytes | None] = [None] * RUNS
        for number, run in enumerate(commit.runs):
            base = run.log * MAX_LOG_ELEMENTS
            self.ints += (base + run.first, base, run.length)
            data[number] = run.data
        self.ints += _NO_RUN * (RUNS - len(commit.runs))
        key = row.key
        self.bytes += (record.id, record.session, record.data, *texts)
        self.bytes += (*key_columns(key.key), key.tree, row.value, row.was, *data)
        self.words.append(key.space)
        if len(commit.rows) == 1:
            self.bytes += _NO_ROW
            self.words.append("")
        else:
            beside = commit.rows[1]
            self.bytes += (*key_columns(beside.key.key), beside.key.tree, beside.key.key[INDEXED:], beside.value)
            self.words.append(beside.key.space)


def _conflict(commit: Commit, answer: int) -> CommitConflict:
    assert commit.record is not None
    if answer <= RUNS:
        return CommitConflict("run", commit.runs[answer - 1].log)
    return CommitConflict("record", commit.record.id) if answer == 3 else CommitConflict("row", commit.rows[0].key)
