"""What the tasks of an unfinished step have written, for readers of the conversation.

LangGraph stores a task's writes before the checkpoint of its step. After a crash in between, a tool's
result is there only. Imports nothing of LangGraph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ormsgpack

from holdfast.adapters.langgraph import row_keys
from holdfast.adapters.langgraph.row_keys import ThreadNamespace
from holdfast.adapters.langgraph.transcript import BRANCH, CHANNEL, INTERRUPTS, pending_nodes, without_positions
from holdfast.backends.port import STORE
from holdfast.format import frame
from holdfast.format.rows import head
from holdfast.model.checkpoint import Checkpoint
from holdfast.operations.context import StoreContext

_INTERRUPT = "__interrupt__"


async def apply_writes(ctx: StoreContext, checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with the messages that tasks have written since, and the questions that wait.

    If all tasks of the step have finished, the nodes that they lead to are next.
    """
    about, state = checkpoint.metadata, checkpoint.execution_state
    thread, ns, id_ = (about.get(name) for name in ("thread_id", "checkpoint_ns", "langgraph_id"))
    channels = state.get("channel_values") if isinstance(state, Mapping) else None
    if not (isinstance(thread, str) and isinstance(ns, str) and isinstance(id_, str) and isinstance(channels, Mapping)):
        return checkpoint
    finished: dict[str, list[tuple[str, Any]]] = {}
    asked: list[Any] = []
    prefix = row_keys.checkpoint_prefix(ThreadNamespace(thread, ns), id_)
    for key, row in await ctx.backend.scan(row_keys.WRITES, tree=STORE, prefix=prefix):
        _, framed = ormsgpack.unpackb(head.content(key, row))
        for index, channel, path, value in sorted(ctx.codec.decode(frame.content(framed))):
            decoded = ctx.codec.decode(value)
            if index >= 0:
                finished.setdefault(f"{path} {key.key.hex()}", []).append((channel, decoded))
            elif channel == _INTERRUPT:
                asked += decoded if isinstance(decoded, list | tuple) else [decoded]
    writes = [write for task in sorted(finished) for write in finished[task]]
    written = [item for channel, value in writes if channel == CHANNEL for item in _make_list(value)]
    made = {**channels, CHANNEL: [*(channels.get(CHANNEL) or ()), *written]} if written else dict(channels)
    if finished and len(finished) == len(pending_nodes(state)):
        made = without_positions(made) | {name: None for name, _ in writes if name.startswith(BRANCH)}
    return replace(checkpoint, execution_state={**state, "channel_values": made, INTERRUPTS: asked})


def _make_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
