"""The state of a crew, flow or agent as a checkpoint, and back, for saves by hand."""

from __future__ import annotations

from typing import Any

from crewai import Agent, Crew
from crewai.flow.flow import Flow
from crewai.lite_agent_output import LiteAgentOutput

from holdfast.adapters.base.manual import build_checkpoint, read_state
from holdfast.adapters.crewai.flow import dump_state, restore_state
from holdfast.adapters.crewai.result import dump_conversation, dump_task_output, load_messages, load_task_output
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


def extract(native: Any, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return the state of a crew or flow that is not running, for `client.save_checkpoint`.

    That of a crew is the outputs of its tasks, that of a flow its state. An agent has none: give what
    its `kickoff` returned, which has the messages.
    """
    return build_checkpoint(
        Framework.CREWAI, _extract_state(native), agent_id=agent_id, session_id=session_id, context=context
    )


def reconstruct(checkpoint: Checkpoint, target: Any) -> Any:
    """Put the state of a checkpoint into a crew or flow, and return it.

    For an agent, return the messages that `agent.kickoff(messages)` takes: an agent has no place for
    them.
    """
    if isinstance(target, Flow):
        restore_state(target, read_state(checkpoint, Framework.CREWAI, "flow")["flow"])
        return target
    if isinstance(target, Agent):
        return load_messages(read_state(checkpoint, Framework.CREWAI, "messages")["messages"])
    if not isinstance(target, Crew):
        raise UsageError(f"reconstruct() takes a Crew, a Flow or an Agent of CrewAI, not a {type(target).__name__}")
    state = read_state(checkpoint, Framework.CREWAI, "messages", "tasks")
    position = 0
    for task, about in zip(target.tasks, state["tasks"], strict=False):
        if about is not None:
            messages = load_messages(state["messages"][position : position + about["stored"]])
            task.output = load_task_output(about, messages, task)
            position += about["stored"]
    return target


def _extract_state(native: Any) -> dict[str, Any]:
    if isinstance(native, Flow):
        return {"flow": dump_state(native), "messages": []}
    if isinstance(native, LiteAgentOutput):
        conversation = [message for message in native.messages if message["role"] != "system"]
        return {"messages": dump_conversation(conversation, native.agent_role, native.raw)}
    if isinstance(native, Crew):
        outputs = [task.output for task in native.tasks]
        done = [task for task in outputs if task is not None]
        return {
            "messages": [item for task in done for item in dump_conversation(task.messages, task.agent, task.raw)],
            "tasks": [None if task is None else dump_task_output(task) for task in outputs],
        }
    raise UsageError(
        f"extract() takes a Crew, a Flow, or what the kickoff of an agent returned, not a {type(native).__name__}"
    )
