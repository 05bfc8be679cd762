"""`extract` and `reconstruct`: a result of the SDK as a checkpoint, and the conversation back."""

from __future__ import annotations

from typing import Any

from agents import Agent, RunResult, RunResultStreaming

from holdfast.adapters.base.manual import build_checkpoint, read_state
from holdfast.adapters.openai_agents.result import plain_items
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


def extract(native: Any, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return the conversation of a result, or a list of items, as a checkpoint.

    `client.save_checkpoint` saves it; `resumable(agent, session_id=...)` continues it.
    """
    last = None
    if isinstance(native, RunResult | RunResultStreaming):
        if native.interruptions:
            raise UsageError(
                "the result waits for approval of a call: extract() takes finished results only. resumable(agent) "
                "keeps such questions in the store"
            )
        last = native.last_agent.name
        native = native.to_input_list()
    elif not isinstance(native, list | str):
        raise UsageError(f"extract() takes a RunResult or a list of items, not a {type(native).__name__}")
    state = {"messages": plain_items(native), "agent": last}
    return build_checkpoint(
        Framework.OPENAI_AGENTS, state, agent_id=agent_id, session_id=session_id, context=context, step_name=last
    )


def reconstruct(checkpoint: Checkpoint, target: Agent[Any]) -> tuple[Agent[Any], list[Any]]:
    """Return the agent that spoke last, and the conversation.

    `Runner.run(agent, [*items, {"role": "user", "content": "..."}])` continues it.
    `target` is the agent that the conversation began with.
    """
    from holdfast.adapters.openai_agents.resumable import find_agent

    if not isinstance(target, Agent):
        raise UsageError(f"reconstruct() takes an Agent of the OpenAI Agents SDK, not a {type(target).__name__}")
    state = read_state(checkpoint, Framework.OPENAI_AGENTS, "messages")
    return find_agent(target, state.get("agent") or target.name, checkpoint.session_id), list(state["messages"])
