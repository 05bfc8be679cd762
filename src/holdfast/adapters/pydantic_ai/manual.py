"""Manual control: the messages of a Pydantic AI run as a checkpoint, and back."""

from __future__ import annotations

from typing import Any

from pydantic_ai.agent import AbstractAgent, AgentRun, AgentRunResult
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelRequest, ModelResponse
from pydantic_ai.result import StreamedRunResult

from holdfast.adapters.base.manual import build_checkpoint, read_state
from holdfast.adapters.pydantic_ai.messages import dump_messages, load_messages
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


def extract(native: Any, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return a checkpoint of a result, of a run that is under way, or of messages.

    `client.save_checkpoint(checkpoint)` saves it. `resumable(..., session_id=...)` continues it.
    """
    if isinstance(native, AgentRunResult | AgentRun | StreamedRunResult):
        messages = native.all_messages()
    elif isinstance(native, Conversation):
        messages = native.messages
    elif isinstance(native, list | tuple) and all(isinstance(item, ModelRequest | ModelResponse) for item in native):
        messages = list(native)
    else:
        raise UsageError(
            "extract() takes a result of an agent, a Conversation, or a list of messages, not a "
            f"{type(native).__name__}"
        )
    return build_checkpoint(
        Framework.PYDANTIC_AI,
        {"messages": dump_messages(messages)},
        agent_id=agent_id,
        session_id=session_id,
        context=context,
    )


def reconstruct(checkpoint: Checkpoint, target: AbstractAgent[Any, Any] | None = None) -> Conversation:
    """Return the conversation of a checkpoint: `agent.run(prompt, conversation=...)` continues it.

    Pydantic AI has no state within an agent, so `target` stays as it is.
    """
    if target is not None and not isinstance(target, AbstractAgent):
        raise UsageError(f"reconstruct() takes an Agent of Pydantic AI, not a {type(target).__name__}")
    state = read_state(checkpoint, Framework.PYDANTIC_AI, "messages")
    return Conversation(messages=load_messages(state["messages"]), conversation_id=checkpoint.session_id)
