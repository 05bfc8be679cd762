"""The memory of an agent as a checkpoint, and back, for saves by hand."""

from __future__ import annotations

from typing import Any

from smolagents.agents import MultiStepAgent

from holdfast.adapters.base.manual import build_checkpoint, open_state
from holdfast.adapters.smolagents.steps import AgentStartState, dump_step, dump_variables
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


def extract(native: MultiStepAgent, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return the memory and variables of an agent that is not running, for `client.save_checkpoint`."""
    _check(native, "extract")
    state = {"messages": [dump_step(step) for step in native.memory.steps], "first": 0, **dump_variables(native)}
    return build_checkpoint(Framework.SMOLAGENTS, state, agent_id=agent_id, session_id=session_id, context=context)


def reconstruct(checkpoint: Checkpoint, target: MultiStepAgent) -> MultiStepAgent:
    """Put memory and variables of a checkpoint into an agent, and return it.

    `target.run(task, reset=False)` continues with them.
    """
    _check(target, "reconstruct")
    with open_state(checkpoint, Framework.SMOLAGENTS, "messages") as state:
        AgentStartState(target).restore(target, state)
    return target


def _check(agent: Any, name: str) -> None:
    if not isinstance(agent, MultiStepAgent):
        raise UsageError(f"{name}() takes an agent of smolagents, not a {type(agent).__name__}")
