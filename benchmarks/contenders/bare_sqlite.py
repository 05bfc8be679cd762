"""The floor: Python's sqlite3, one insert and one commit of ready-made bytes at FULL, in one
thread, without asyncio."""

import asyncio
import sqlite3
import threading
from pathlib import Path
from queue import SimpleQueue

from benchmarks.contenders.contender import describe_durability


class BareSqlite:
    key = "bare_sqlite3"
    title = "bare sqlite3 insert + commit"

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(directory / "store.db", check_same_thread=False)
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


class BareSqliteInThread:
    """The floor of an async client: the same commit by another thread, so that the event loop is
    never blocked. A queue, a future and a call of the loop: there is no cheaper way there and back."""

    key = "bare_sqlite3_hop"

    def __init__(self, directory: Path) -> None:
        self._bare = BareSqlite(directory)
        self._jobs: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    async def save(self, data: bytes) -> None:
        future = asyncio.get_running_loop().create_future()
        self._jobs.put((data, future))
        await future

    def durability(self) -> str:
        return self._bare.durability()

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._bare.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            data, future = job
            self._bare.save(data)
            future.get_loop().call_soon_threadsafe(future.set_result, None)
