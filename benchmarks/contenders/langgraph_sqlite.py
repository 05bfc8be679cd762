"""LangGraph's SQLite saver, driven directly, without a graph around it.

The plain saver gets the whole state as channel values. A real graph would also call `aput_writes` at each step, so
the plain saver is flattered here.
"""

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.contenders.contender import Contender, describe_durability
from benchmarks.conversation import State, Step

SNAPSHOT_EVERY = 100
MESSAGES = "messages"


class LanggraphSqlite(Contender):
    key = "langgraph"
    title = "langgraph-sqlite"
    writes_whole_states = True

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        self._saver = await self._stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(self.path)))
        self._heads: dict[str, dict[str, Any]] = {}

    async def close(self) -> None:
        await self._stack.aclose()

    async def save(self, session: str, step: Step) -> str:
        return await self._put(session, step.number, step.state)

    async def restore(self, session: str, checkpoint_id: str) -> State:
        found = await self._saver.aget_tuple(config_of(session, checkpoint_id))
        return found.checkpoint["channel_values"]

    async def timeline(self, session: str, limit: int) -> int:
        return len([entry async for entry in self._saver.alist(config_of(session), limit=limit)])

    async def durability(self) -> str:
        await self._saver.setup()
        async with self._saver.conn.execute("PRAGMA journal_mode") as cursor:
            journal_mode = (await cursor.fetchone())[0]
        async with self._saver.conn.execute("PRAGMA synchronous") as cursor:
            return describe_durability(journal_mode, (await cursor.fetchone())[0])

    async def _put(self, session: str, number: int, values: State) -> str:
        parent = self._heads.get(session) or config_of(session)
        checkpoint, metadata, versions = checkpoint_of(number, values)
        self._heads[session] = await self._saver.aput(parent, checkpoint, metadata, versions)
        return checkpoint["id"]


class LanggraphDelta(LanggraphSqlite):
    """What LangGraph's DeltaChannel (beta) stores: each step's writes, and a snapshot every hundred updates.

    Only the messages are written as writes; a real graph writes every changed channel, so this is flattered too.
    """

    key = "langgraph_delta"
    title = "langgraph DeltaChannel"
    writes_whole_states = False

    async def open(self) -> None:
        await super().open()
        self._updates: dict[str, int] = {}

    async def save(self, session: str, step: Step) -> str:
        if session not in self._heads:
            # A DeltaChannel's writes belong to the checkpoint before; a thread starts with its input's.
            self._updates[session] = 0
            await self._put(session, 0, {MESSAGES: _DeltaSnapshot(step.state[MESSAGES][: -len(step.added)])})
        await self._saver.aput_writes(self._heads[session], [(MESSAGES, step.added)], task_id=f"task-{step.number}")
        self._updates[session] += 1
        values = step.rest
        if self._updates[session] % SNAPSHOT_EVERY == 0:
            values = {**values, MESSAGES: _DeltaSnapshot(step.state[MESSAGES])}
        return await self._put(session, step.number, values)

    async def restore(self, session: str, checkpoint_id: str) -> State:
        config = config_of(session, checkpoint_id)
        values = (await self._saver.aget_tuple(config)).checkpoint["channel_values"]
        if MESSAGES in values:
            return {**values, MESSAGES: values[MESSAGES].value}
        history = (await self._saver.aget_delta_channel_history(config=config, channels=[MESSAGES]))[MESSAGES]
        messages = list(history["seed"].value)
        for _task, _channel, added in history["writes"]:
            messages.extend(added)
        return {**values, MESSAGES: messages}


def checkpoint_of(number: int, values: State) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """What a graph would put: a checkpoint of these values, its metadata, and the versions of its channels."""
    checkpoint = empty_checkpoint()
    checkpoint["id"] = str(uuid6(clock_seq=number))
    checkpoint["ts"] = datetime.now(UTC).isoformat()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = versions = dict.fromkeys((*values, MESSAGES), number)
    return checkpoint, {"source": "loop", "step": number, "parents": {}}, versions


def config_of(session: str, checkpoint_id: str | None = None) -> dict[str, Any]:
    configurable = {"thread_id": session, "checkpoint_ns": ""}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}
