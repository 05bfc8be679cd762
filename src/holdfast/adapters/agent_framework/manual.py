"""A session or a workflow's checkpoint as a checkpoint of the store, and back, for saves by hand."""

from __future__ import annotations

from typing import Any

from agent_framework import AgentSession, RawAgent, Workflow, WorkflowCheckpoint

from holdfast.adapters.agent_framework.stored_session import (
    StoredSession,
    dump_session,
    load_messages,
    stored_messages,
)
from holdfast.adapters.agent_framework.values import dump_checkpoint, load_checkpoint
from holdfast.adapters.base.manual import build_checkpoint, read_state
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


def extract(native: Any, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return an `AgentSession` or a `WorkflowCheckpoint` as a checkpoint for `client.save_checkpoint`."""
    if isinstance(native, AgentSession):
        state: dict[str, Any] = {"session": dump_session(native)}
    elif isinstance(native, WorkflowCheckpoint):
        state = {"checkpoint": dump_checkpoint(native)}
    else:
        raise UsageError(f"extract() takes an AgentSession or a WorkflowCheckpoint, not a {type(native).__name__}")
    return build_checkpoint(Framework.AGENT_FRAMEWORK, state, agent_id=agent_id, session_id=session_id, context=context)


def reconstruct(checkpoint: Checkpoint, target: RawAgent | Workflow) -> Any:
    """Return the `AgentSession` for an agent, or the `WorkflowCheckpoint` for a workflow.

    `agent.run(..., session=...)` continues the one. A `CheckpointStorage` that has the other lets
    `workflow.run(checkpoint_id=...)` continue it.
    """
    state = read_state(checkpoint, Framework.AGENT_FRAMEWORK)
    wanted = "checkpoint" if isinstance(target, Workflow) else "session"
    if wanted not in state:
        kind = "workflow" if isinstance(target, Workflow) else "agent"
        raise UsageError(
            f"checkpoint {checkpoint.checkpoint_id} of session {checkpoint.session_id!r:.60} has no state of such a "
            f"target ({kind}): it was saved for "
            "another kind of target, or before the first turn was finished"
        )
    if isinstance(target, Workflow):
        return load_checkpoint(state["checkpoint"])
    messages = stored_messages(state)
    return StoredSession(state, checkpoint.session_id, stored=messages, loaded=load_messages(messages)).session
