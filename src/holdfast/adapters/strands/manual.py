"""`extract` and `reconstruct`: an agent of Strands as a checkpoint, and back."""

from __future__ import annotations

from typing import Any

from strands import Agent, Snapshot
from strands.multiagent import Swarm
from strands.multiagent.graph import Graph

from holdfast.adapters.base.manual import build_checkpoint, open_state
from holdfast.adapters.strands.team import AGENTS, MESSAGES, StrandsTeam, check_messages, key_of
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


def extract(native: Any, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return the conversation of an agent, graph or swarm, or a `Snapshot` of an agent, as a checkpoint.

    `client.save_checkpoint` saves it; `resumable(agent, session_id=...)` continues it. The system
    prompt is the program's, and not part of it.
    """
    if isinstance(native, Snapshot) and native.scope == "agent":
        data = dict(native.data)
        pending = data.pop("interrupt_state", None) or {}
        data.pop("system_prompt", None)
        state = {MESSAGES: data.pop("messages", []), AGENTS: {"": data}}
    elif isinstance(native, Agent | Graph | Swarm):
        team = StrandsTeam(native)
        state = team.dump()
        pending = {"activated": any(team.is_waiting())}
    else:
        raise UsageError(
            f"extract() takes an Agent, a Graph, a Swarm or a Snapshot of an agent, not a {type(native).__name__}"
        )
    if pending.get("activated"):
        raise UsageError(
            "the agent waits for an answer to an interrupt: extract() takes finished runs only. resumable(agent) keeps "
            "such questions in the store"
        )
    return build_checkpoint(
        Framework.STRANDS, state, agent_id=agent_id, session_id=session_id, context=context, step_name="extract"
    )


def reconstruct(checkpoint: Checkpoint, target: Any) -> Any:
    """Put an agent, graph or swarm where the conversation stands, and return it.

    Calls at the end of the conversation that have no result are answered as interrupted.
    """
    if not isinstance(target, Agent | Graph | Swarm):
        raise UsageError(f"reconstruct() takes an Agent, a Graph or a Swarm of Strands, not a {type(target).__name__}")
    with open_state(checkpoint, Framework.STRANDS, AGENTS) as state:
        team = StrandsTeam(target)
        for path in team.agents:
            check_messages(state.get(key_of(path), []))
        team.load(state)
    return target
