"""Contenders on PostgreSQL without an event loop: one writer, on one connection, as programs
without `await` call them."""

from abc import abstractmethod
from contextlib import ExitStack
from typing import Any

import psycopg

from benchmarks.contenders.langgraph_sqlite import checkpoint_of, config_of
from benchmarks.contenders.on_server import OnPostgres
from benchmarks.conversation import State, Step, compact_json


class WithoutLoop(OnPostgres):
    writes_whole_states = True

    async def open(self) -> None:
        self._stack = ExitStack()
        self.open_now()

    async def close(self) -> None:
        self._stack.close()

    @abstractmethod
    def open_now(self) -> None: ...

    @abstractmethod
    def save_now(self, session: str, step: Step) -> None: ...

    async def save(self, session: str, step: Step) -> str:
        raise NotImplementedError  # only saves are measured

    async def restore(self, session: str, checkpoint_id: str) -> State:
        raise NotImplementedError  # only saves are measured

    async def timeline(self, session: str, limit: int) -> int:
        raise NotImplementedError  # only saves are measured


class HoldfastPostgresSync(WithoutLoop):
    key = "holdfast_postgres_sync"
    title = "holdfast on PostgreSQL, SyncClient"

    def open_now(self) -> None:
        from holdfast import SyncClient

        self._client = self._stack.enter_context(SyncClient.postgres(self.server.dsn))

    def save_now(self, session: str, step: Step) -> None:
        self._client.save(agent_id="bench", execution_state=step.state, session_id=session)


class LanggraphPostgresSync(WithoutLoop):
    key = "langgraph_postgres_sync"
    title = "langgraph-postgres, PostgresSaver"

    def open_now(self) -> None:
        from langgraph.checkpoint.postgres import PostgresSaver

        self._heads: dict[str, Any] = {}
        self._saver = self._stack.enter_context(PostgresSaver.from_conn_string(self.server.dsn))
        self._saver.setup()

    def save_now(self, session: str, step: Step) -> None:
        parent = self._heads.get(session) or config_of(session)
        self._heads[session] = self._saver.put(parent, *checkpoint_of(step.number, step.state))


class RawPostgresSync(WithoutLoop):
    key = "raw_insert_sync"
    title = "bare INSERT of the same bytes, without a loop"

    def open_now(self) -> None:
        self._connection = self._stack.enter_context(psycopg.connect(self.server.dsn, autocommit=True))
        self._connection.execute("CREATE TABLE bare (n bigserial PRIMARY KEY, data bytea NOT NULL)")
        self._ready: dict[str, bytes] = {}

    def save_now(self, session: str, step: Step) -> None:
        data = self._ready.get(session)
        if data is None:
            data = self._ready[session] = compact_json(step.state)
        self._connection.execute("INSERT INTO bare (data) VALUES (%b)", (data,), prepare=True)
