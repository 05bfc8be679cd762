"""The conversation of an OpenAI Agents session, in neutral form. Imports nothing of the SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.adapters.base.recorded import build_transcript
from holdfast.model.chat_messages import content_parts, message_of_chat
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    GenericPart,
    MessagePart,
    ReasoningPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptMessage,
)
from holdfast.model.transcript import parse_object


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, messages_of_answer)


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    return list(_messages(state.get("messages")))


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the messages of one answer of the model."""
    return list(_messages(answer.get("output") if isinstance(answer, Mapping) else None))


def _messages(items: Any) -> Iterator[TranscriptMessage]:
    """Yield the items of the Responses API as messages; each item is one."""
    for item in items if isinstance(items, list | tuple) else ():
        if not isinstance(item, Mapping):
            continue
        if "role" in item:
            yield message_of_chat(item)
        else:
            part = _part(item)
            yield TranscriptMessage(role="tool" if isinstance(part, ToolResponsePart) else "assistant", parts=(part,))


def _part(item: Mapping[str, Any]) -> MessagePart:
    match item.get("type"):
        case "function_call":
            written = item.get("arguments")
            arguments = parse_object(written)
            return ToolCallPart(
                id=str(item.get("call_id")),
                name=str(item.get("name")),
                arguments=arguments,
                raw_arguments=str(written) if arguments is None else None,
            )
        case "function_call_output":
            return ToolResponsePart(id=str(item.get("call_id")), content=tuple(content_parts(item.get("output"))))
        case "reasoning":
            summary = item.get("summary")
            texts = [str(one.get("text", "")) for one in summary or () if isinstance(one, Mapping)]
            encrypted = item.get("encrypted_content")
            return ReasoningPart(content="\n".join(texts), provider="openai", encrypted=encrypted)
        case other:
            return GenericPart(type=str(other), values={key: one for key, one in item.items() if key != "type"})
