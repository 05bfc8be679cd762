"""The conversation of a CrewAI session, in neutral form. Imports nothing of CrewAI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.adapters.base.recorded import build_transcript
from holdfast.model.chat_messages import message_of_chat
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import Transcript, TranscriptMessage


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, messages_of_answer)


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    """Return the messages of all tasks, one task after the other; the author is the agent of the task."""
    found = state.get("messages")
    return [_message(one) for one in found if isinstance(one, Mapping)] if isinstance(found, list | tuple) else []


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the message of one answer of the model."""
    if not isinstance(answer, Mapping):
        return []
    text = answer.get("text")
    content = text if text is not None else None if "calls" in answer else str(answer.get("data"))
    return [_message({"role": "assistant", "content": content, "tool_calls": answer.get("calls")})]


def _message(stored: Mapping[str, Any]) -> TranscriptMessage:
    plain = {name: value for name, value in stored.items() if name != "agent"}
    message = message_of_chat(plain)
    is_said_by_agent = message.role == "assistant" and "agent" in stored
    return replace(message, author=str(stored["agent"])) if is_said_by_agent else message
