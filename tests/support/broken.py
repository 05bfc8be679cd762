"""Writers and backends with deliberate faults: controls, which the crash tests must fail."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.backends.files.disk import Disk
from holdfast.backends.files.journal import CommitJournal
from holdfast.backends.port import Commit
from holdfast.backends.sqlite.backend import SqliteBackend

EARLY = "acknowledge before the save"
LATE = "files get the second half of their content after the commit"
PIECES = "SQLite commits the record before the runs it refers to"


def break_(how: str) -> None:
    if how == LATE:
        _write_late()
    elif how == PIECES:
        _commit_in_pieces()


def _write_late() -> None:
    owed: list[tuple[int, bytes]] = []
    create, commit = Disk.create, CommitJournal.commit

    def create_half(self: Disk, path: str, data: bytes, time_us: int | None = None) -> None:
        if not path.rpartition("/")[2].isdigit():  # the journal, or the file that says what the store is
            return create(self, path, data, time_us)
        half = len(data) // 2
        create(self, path, data[:half], time_us)
        owed.append((os.open(self.resolve(path), os.O_WRONLY | os.O_APPEND), data[half:]))
        return None

    def commit_then_write(self: CommitJournal, changes: Any) -> None:
        commit(self, changes)
        while owed:
            descriptor, data = owed.pop()
            os.write(descriptor, data)
            os.close(descriptor)

    Disk.create, CommitJournal.commit = create_half, commit_then_write


def _commit_in_pieces() -> None:
    commit_all = SqliteBackend.commit_all

    def record_then_runs(self: SqliteBackend, commits: Sequence[Commit]) -> list[BaseException | None]:
        first = commit_all(self, [replace(commit, segments=()) for commit in commits])
        then = commit_all(self, [Commit(tree=commit.tree, segments=commit.segments) for commit in commits])
        return [one or other for one, other in zip(first, then, strict=True)]

    SqliteBackend.commit_all = record_then_runs
