"""The floor under the cold start: the first commit of a process that does with bare sqlite3 no more than any save must.

It is told the session and has its bytes ready. It looks where the session stands (a row, and the
record that it names), takes the write lock, moves the row by compare-and-set, adds a record and
what is new, and commits. The commits that follow leave out the look. Nothing is encoded, hashed or
checked, and all of it happens on the calling thread.

What is left is SQLite's own: the last process to close a database removes its WAL, so the first
commit of the next one makes the file, syncs its header and the directory, and only then does what
every commit does.
"""

import json
import sqlite3
import statistics
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.conversation import Conversation, compact_json
from benchmarks.measure import Samples, milliseconds, settle
from benchmarks.plan import MEGABYTE

WARM_COMMITS = 15
RECORD_BYTES = 500  # about what a record of holdfast's takes
PIECE = 24_000  # about what a sealed run of holdfast's takes
SCHEMA = (
    "CREATE TABLE line (session TEXT PRIMARY KEY, version INTEGER, record INTEGER) WITHOUT ROWID",
    "CREATE TABLE record (n INTEGER PRIMARY KEY, data BLOB)",
    "CREATE TABLE run (n INTEGER PRIMARY KEY, data BLOB)",
)
LINE = "SELECT version, record FROM line WHERE session = ?"
RECORD = "SELECT data FROM record WHERE n = ?"
MOVE = "UPDATE line SET version = version + 1, record = ? WHERE session = ? AND version = ?"
ADD_RECORD = "INSERT INTO record (data) VALUES (?)"
ADD_RUN = "INSERT INTO run (data) VALUES (?)"


def build(path: Path, sessions: int) -> None:
    path.parent.mkdir(parents=True)
    with closing(_connected(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        for statement in SCHEMA:
            db.execute(statement)
        for number in range(sessions):
            conversation = Conversation(10 + number)
            history = compact_json(conversation.grow_to(MEGABYTE).state)
            db.execute("BEGIN")
            db.executemany(ADD_RUN, [(history[at : at + PIECE],) for at in range(0, len(history), PIECE)])
            record = db.execute(ADD_RECORD, (bytes(RECORD_BYTES),)).lastrowid
            db.execute("INSERT INTO line VALUES (?, 1, ?)", (_session(number), record))
            db.execute("COMMIT")


def _connected(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")
    return db


def _session(number: int) -> str:
    return f"session-{number}"


class _Writer:
    def __init__(self, db: sqlite3.Connection, session: str) -> None:
        self._db = db
        self._session = session
        self._version = 0
        # As holdfast does when it is opened: what is prepared now is not prepared by the first save.
        db.execute(LINE, ("",)).fetchone()
        db.execute(RECORD, (0,)).fetchone()
        for statement in (MOVE, ADD_RECORD, ADD_RUN):
            db.executemany(statement, ())

    def first(self, data: bytes) -> None:
        self._version, record = self._db.execute(LINE, (self._session,)).fetchone()
        self._db.execute(RECORD, (record,)).fetchone()
        self.commit(data)

    def commit(self, data: bytes) -> None:
        execute = self._db.execute
        execute("BEGIN IMMEDIATE")
        execute(ADD_RUN, (data,))
        record = execute(ADD_RECORD, (bytes(RECORD_BYTES),)).lastrowid
        if execute(MOVE, (record, self._session, self._version)).rowcount != 1:
            raise AssertionError("somebody else was first, though nobody else is there")
        execute("COMMIT")
        self._version += 1


def _timed(samples: Samples, call: Callable[[bytes], None], data: bytes) -> None:
    stop = samples.start()
    call(data)
    stop()


def _child(path: Path, number: int) -> dict[str, float]:
    conversation = Conversation(10 + number)
    conversation.grow_to(MEGABYTE)
    ready = [compact_json(conversation.advance().added) for _ in range(1 + WARM_COMMITS)]
    first, warm = Samples(), Samples()
    with closing(_connected(path)) as db:
        writer = _Writer(db, _session(number))
        settle()
        _timed(first, writer.first, ready[0])
        for data in ready[1:]:
            _timed(warm, writer.commit, data)
    return {
        "first_ms": milliseconds(first.wall[0]),
        "first_cpu_ms": milliseconds(first.cpu[0]),
        "warm_ms": milliseconds(statistics.median(warm.wall)),
        "warm_cpu_ms": milliseconds(statistics.median(warm.cpu)),
    }


if __name__ == "__main__":
    print(json.dumps(_child(Path(sys.argv[1]), int(sys.argv[2]))))
