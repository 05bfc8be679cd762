"""The floor: Python's sqlite3, one insert and one commit of ready-made bytes at FULL, in one thread, without asyncio."""

import sqlite3
from pathlib import Path

from benchmarks.contenders.contender import describe_durability


class BareSqlite:
    key = "bare_sqlite3"
    title = "bare sqlite3 insert + commit"

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(directory / "store.db")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE checkpoint (number INTEGER PRIMARY KEY, state BLOB)")

    def save(self, data: bytes) -> None:
        self._db.execute("INSERT INTO checkpoint (state) VALUES (?)", (data,))
        self._db.commit()

    def durability(self) -> str:
        journal_mode = self._db.execute("PRAGMA journal_mode").fetchone()[0]
        return describe_durability(journal_mode, self._db.execute("PRAGMA synchronous").fetchone()[0])

    def close(self) -> None:
        self._db.close()
