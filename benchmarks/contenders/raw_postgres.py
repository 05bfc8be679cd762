"""The floor on PostgreSQL: one prepared INSERT of ready-made bytes by psycopg, committed by itself,
on one connection. Encodes and checks nothing, and keeps no order."""

from psycopg import AsyncConnection

from benchmarks.contenders.on_server import OnPostgres
from benchmarks.conversation import State, Step, compact_json


class RawPostgres(OnPostgres):
    key = "raw_insert"
    title = "bare INSERT of the same bytes"
    writes_whole_states = True

    async def open(self) -> None:
        self._connection = await AsyncConnection.connect(self.server.dsn, autocommit=True)
        await self._connection.execute("CREATE TABLE bare (n bigserial PRIMARY KEY, data bytea NOT NULL)")
        self._ready: dict[str, bytes] = {}

    async def close(self) -> None:
        await self._connection.close()

    async def save(self, session: str, step: Step) -> str:
        """The bytes of the session's first state: making them is not what is measured."""
        data = self._ready.get(session)
        if data is None:
            data = self._ready[session] = compact_json(step.state)
        await self._connection.execute("INSERT INTO bare (data) VALUES (%b)", (data,), prepare=True)
        return session

    async def restore(self, session: str, checkpoint_id: str) -> State:
        raise NotImplementedError  # only saves are measured

    async def timeline(self, session: str, limit: int) -> int:
        raise NotImplementedError  # only saves are measured
