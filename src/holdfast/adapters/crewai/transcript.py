"""The conversation of a CrewAI session, in neutral form. Imports nothing of CrewAI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.adapters.base.conversion import native_messages, place_messages
from holdfast.adapters.base.session_transcript import build_transcript
from holdfast.model.chat_lists import chat_of_messages
from holdfast.model.chat_messages import message_of_chat
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import Transcript, TranscriptMessage
from holdfast.model.conversion_target import ConversionOptions, ConvertedState

AUTHOR = "agent"
"""The key of a stored message that has the role of the agent whose conversation it is in."""
HISTORY = "history"
"""The key of a state that counts the messages which come from another framework."""


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(
        checkpoint, messages_of_state, messages_of_answer, state_of=_state_of, pending_of=_pending_of
    )


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    """Return the messages of all tasks, one task after the other; the author is the agent of the task."""
    found = state.get("messages")
    return [_message(item) for item in found if isinstance(item, Mapping)] if isinstance(found, list | tuple) else []


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the message of one answer of the model."""
    if not isinstance(answer, Mapping):
        return []
    text = answer.get("text")
    content = text if text is not None else None if "calls" in answer else str(answer.get("data"))
    return [_message({"role": "assistant", "content": content, "tool_calls": answer.get("calls")})]


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the state that `resumable(agent, session_id=...)` continues.

    A crew has no place for a conversation: its first task gets it as context.
    """
    chat = [item for message in transcript for item in _native_messages(message, options)]
    messages = [*native_messages(options), *chat]
    return place_messages(messages, options, {HISTORY: len(messages)})


def _native_messages(message: TranscriptMessage, options: ConversionOptions) -> Iterator[dict[str, Any]]:
    """Yield chat messages with the agent they belong to; CrewAI wants the names of tools in results, too."""
    tools = {part.id: part.name for part in message.tool_responses}
    for chat_message in chat_of_messages([message]):
        spoken = {name: value for name, value in chat_message.items() if name != "name"}
        if chat_message["role"] == "tool":
            spoken["name"] = tools[chat_message["tool_call_id"]]
        yield {**spoken, AUTHOR: message.author or options.agent_id}


def _state_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a flow; outputs of tasks are in the messages."""
    flow = state.get("flow")
    return dict(flow) if isinstance(flow, Mapping) else {}


def _pending_of(turn: Mapping[str, Any]) -> Sequence[str]:
    """Return the kickoff of a crew or flow that was cut off: its tasks are not in the conversation.

    An agent's kickoff is given a text or messages, that of a crew its inputs.
    """
    given = turn.get("input")
    return () if isinstance(given, str | list) else ("kickoff",)


def _message(stored: Mapping[str, Any]) -> TranscriptMessage:
    plain = {name: value for name, value in stored.items() if name != AUTHOR}
    message = message_of_chat(plain)
    is_by_agent = message.role == "assistant" and AUTHOR in stored
    return replace(message, author=str(stored[AUTHOR])) if is_by_agent else message
