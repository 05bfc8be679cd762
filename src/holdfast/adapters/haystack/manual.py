"""The state of an agent or pipeline as a checkpoint, and back, for saves by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, PipelineSnapshot

from holdfast.adapters.base.manual import build_checkpoint, open_state
from holdfast.adapters.haystack.conversation import HaystackConversation
from holdfast.adapters.haystack.values import dump_messages
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


def extract(native: Any, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return a state for `client.save_checkpoint`.

    `native` is what `agent.run` returned, a list of messages, or a `PipelineSnapshot`. System messages
    at the beginning are left out: an agent adds its own.
    """
    name = native.break_point.component_name if isinstance(native, PipelineSnapshot) else None
    return build_checkpoint(
        Framework.HAYSTACK,
        _extract_state(native),
        agent_id=agent_id,
        session_id=session_id,
        context=context,
        step_name=name,
    )


def reconstruct(checkpoint: Checkpoint, target: Any) -> Any:
    """Return what continues a checkpoint: neither an agent nor a pipeline has a place for it.

    For an agent, that is the messages for `agent.run(messages)`; for a pipeline, the snapshot for
    `pipeline.run({}, pipeline_snapshot=...)`.
    """
    if not isinstance(target, Agent | Pipeline):
        raise UsageError(f"reconstruct() takes an Agent or a Pipeline of Haystack, not a {type(target).__name__}")
    if isinstance(target, Pipeline):
        return load_snapshot(checkpoint)
    with open_state(checkpoint, Framework.HAYSTACK, "messages") as state:
        return HaystackConversation.load(state).history


def load_snapshot(checkpoint: Checkpoint) -> PipelineSnapshot:
    """Return the snapshot that `extract` has saved."""
    with open_state(checkpoint, Framework.HAYSTACK, "snapshot") as state:
        return PipelineSnapshot.from_dict(state["snapshot"])


def _extract_state(native: Any) -> dict[str, Any]:
    if isinstance(native, PipelineSnapshot):
        return {"snapshot": native.to_dict(), "messages": []}
    messages = native.get("messages") if isinstance(native, Mapping) else native
    if not isinstance(messages, list) or not all(isinstance(message, ChatMessage) for message in messages):
        raise UsageError(
            "extract() takes what the run of an agent returned, a list of messages, or a PipelineSnapshot, not a "
            f"{type(native).__name__}"
        )
    begins = next((number for number, item in enumerate(messages) if not item.is_from("system")), len(messages))
    return {"messages": dump_messages(messages[begins:])}
