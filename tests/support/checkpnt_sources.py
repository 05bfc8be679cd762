"""Databases that the real checkpnt wrote, and functions that inspect and damage them."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import checkpnt
import ormsgpack
from checkpnt.backends.sqlite import SQLiteBackend

AGENT = "worker"


class Source:
    """A checkpnt database at `path`. `states` are the states as they were given to checkpnt, by id."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.states: dict[str, Any] = {}

    def fill(self, work: Callable[[Filler], Awaitable[None]]) -> None:
        async def run() -> None:
            backend = SQLiteBackend(str(self.path))
            connection = await backend._conn()
            await connection.execute("PRAGMA synchronous=OFF")  # checkpnt's durability is not under test
            async with checkpnt.Client(backend) as client:
                await work(Filler(client, self.states))

        asyncio.run(run())

    def change(self, sql: str, *values: Any) -> None:
        connection = sqlite3.connect(self.path)
        assert connection.execute(sql, values).rowcount > 0
        connection.commit()
        connection.close()

    def change_payload(self, id_: str, change: Callable[[dict[Any, Any]], None]) -> None:
        payload = self.payload(id_)
        change(payload)
        packed = ormsgpack.packb(payload, option=ormsgpack.OPT_NON_STR_KEYS)
        self.change("UPDATE checkpoints SET payload = ? WHERE checkpoint_id = ?", packed, id_)

    def payload(self, id_: str) -> dict[Any, Any]:
        return self.payloads()[id_]

    def payloads(self) -> dict[str, dict[Any, Any]]:
        """What the rows hold, by id, read without holdfast."""
        connection = sqlite3.connect(f"file:{self.path}?mode=ro&immutable=1", uri=True)
        found = connection.execute("SELECT checkpoint_id, payload FROM checkpoints ORDER BY rowid").fetchall()
        connection.close()
        return {id_: ormsgpack.unpackb(payload, option=ormsgpack.OPT_NON_STR_KEYS) for id_, payload in found}

    def fingerprint(self) -> dict[str, tuple[str, int]]:
        """Every file beside the database, with its content and date."""
        return {
            file.name: (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns)
            for file in self.path.parent.iterdir()
        }


class Filler:
    """checkpnt's client, with short words, that writes down what it was given."""

    def __init__(self, client: checkpnt.Client, states: dict[str, Any]) -> None:
        self.client = client
        self._states = states

    async def save(self, session: str, state: Any, agent: str = AGENT, **fields: Any) -> str:
        framework = fields.pop("framework", checkpnt.Framework.CUSTOM)
        id_ = await self.client.save(agent, framework, state, session_id=session, **fields)
        self._states[id_] = state
        return id_

    async def restores(self, id_: str) -> bool:
        """Whether checkpnt itself can restore it."""
        try:
            await self.client.restore(id_)
        except (checkpnt.CheckpntError, ValueError):
            return False
        return True
