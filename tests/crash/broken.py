"""Writers and backends that are broken on purpose: what they do must be found, or the tests that pass prove nothing."""

import os
from typing import Any

from holdfast.backends import sqlite_commit
from holdfast.backends.files.disk import Disk
from holdfast.backends.files.journal import Journal
from holdfast.backends.port import Commit

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
    create, commit = Disk.create, Journal.commit

    def create_half(self: Disk, path: str, data: bytes, time_us: int | None = None) -> None:
        if not path.rpartition("/")[2].isdigit():  # the journal, or the file that says what the store is
            return create(self, path, data, time_us)
        half = len(data) // 2
        create(self, path, data[:half], time_us)
        owed.append((os.open(self.at(path), os.O_WRONLY | os.O_APPEND), data[half:]))
        return None

    def commit_then_write(self: Journal, changes: Any) -> None:
        commit(self, changes)
        while owed:
            descriptor, data = owed.pop()
            os.write(descriptor, data)
            os.close(descriptor)

    Disk.create, Journal.commit = create_half, commit_then_write


def _commit_in_pieces() -> None:
    carry_out = sqlite_commit.carry_out

    def record_then_runs(connection: Any, commit: Commit, known: Any, learned: Any) -> None:
        runs, commit.runs = commit.runs, ()
        carry_out(connection, commit, known, learned)
        if runs:
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
            carry_out(connection, Commit(tree=commit.tree, runs=runs), known, learned)

    sqlite_commit.carry_out = record_then_runs
