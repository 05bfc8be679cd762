"""Helpers of the LangGraph tests: savers on every kind of store, checkpoints, and small graphs."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from stores import Store

from holdfast.langgraph import HoldfastSaver


def saver_on(store: Store, **options: Any) -> HoldfastSaver:
    return HoldfastSaver(store.async_client(), **options)


def config(thread: Any = "t", ns: str = "", id_: str | None = None) -> Any:
    named = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": named | ({"checkpoint_id": id_} if id_ else {})}


def checkpoint(id_: str | None = None, **values: Any) -> Any:
    return {
        "v": 4,
        "id": id_ or str(uuid6(clock_seq=-2)),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, "1"),
        "versions_seen": {"node": dict.fromkeys(values, "1")},
        "updated_channels": None,
    }


def put(saver: BaseCheckpointSaver[Any], where: Any, metadata: Any = None, **values: Any) -> Any:
    """Puts a checkpoint with these channels; the config that leads to it."""
    made = checkpoint(**values)
    return saver.put(where, made, metadata or {"source": "loop", "step": 1}, made["channel_versions"])


def values_of(saver: BaseCheckpointSaver[Any], where: Any) -> Any:
    found = saver.get_tuple(where)
    return None if found is None else found.checkpoint["channel_values"]


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Steps(TypedDict):
    steps: Annotated[list[str], operator.add]


def chat_graph(saver: BaseCheckpointSaver[Any], reply: Callable[[int], str] = "reply {}".format) -> Any:
    def answer(state: Chat) -> Any:
        return {"messages": [AIMessage(reply(len(state["messages"])))]}

    builder = StateGraph(Chat)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


class ThroughSync(BaseCheckpointSaver[str]):
    """The async methods carried out by the sync ones, each in a thread: lets an async suite test these."""

    def __init__(self, inner: HoldfastSaver) -> None:
        super().__init__()
        self.inner = inner

    def get_next_version(self, current: Any, channel: Any) -> str:
        return self.inner.get_next_version(current, channel)

    async def aget_tuple(self, config: Any) -> Any:
        return await asyncio.to_thread(self.inner.get_tuple, config)

    async def alist(self, config: Any, **options: Any) -> Any:
        for found in await asyncio.to_thread(lambda: [*self.inner.list(config, **options)]):
            yield found

    async def aput(self, *args: Any) -> Any:
        return await asyncio.to_thread(self.inner.put, *args)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        await asyncio.to_thread(lambda: self.inner.put_writes(*args, **options))

    async def adelete_thread(self, *args: Any) -> None:
        await asyncio.to_thread(self.inner.delete_thread, *args)

    async def adelete_for_runs(self, *args: Any) -> None:
        await asyncio.to_thread(self.inner.delete_for_runs, *args)

    async def acopy_thread(self, *args: Any) -> None:
        await asyncio.to_thread(self.inner.copy_thread, *args)

    async def aprune(self, *args: Any, **options: Any) -> None:
        await asyncio.to_thread(lambda: self.inner.prune(*args, **options))
