"""`extract` and `reconstruct`: a conversation of AG2 as a checkpoint, and back, for saves by hand."""

from __future__ import annotations

from typing import Any

from ag2 import Agent, AgentReply, MemoryStream
from ag2.context import Stream

from holdfast.adapters.ag2.conversation import EventLog
from holdfast.adapters.base.manual import build_checkpoint, open_state
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


async def extract(native: Any, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return the history of a reply or of a stream as a checkpoint for `client.save_checkpoint`.

    `resumable(agent, session_id=...)` continues it.
    """
    stream = native.context.stream if isinstance(native, AgentReply) else native
    if not isinstance(stream, Stream):
        raise UsageError(f"extract() takes an AgentReply or a Stream of AG2, not a {type(native).__name__}")
    log = EventLog({})
    log.extend(list(await stream.history.get_events()))
    state = {**log.window, "messages": log.added}
    return build_checkpoint(Framework.AG2, state, agent_id=agent_id, session_id=session_id, context=context)


async def reconstruct(checkpoint: Checkpoint, target: Agent[Any]) -> MemoryStream:
    """Return a stream with the conversation: `agent.ask("...", stream=stream)` continues it."""
    if not isinstance(target, Agent):
        raise UsageError(f"reconstruct() takes an Agent of AG2, not a {type(target).__name__}")
    stream = MemoryStream()
    with open_state(checkpoint, Framework.AG2, "messages") as state:
        log = EventLog(state)
    await stream.history.replace(log.history)
    return stream
