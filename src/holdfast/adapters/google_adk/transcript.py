"""The conversation of a session of Google ADK, in neutral form. Imports nothing of ADK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.adapters.base.recorded import build_transcript
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    BlobPart,
    GenericPart,
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.transcript_repair import as_text


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, messages_of_answer)


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    return list(_messages(state.get("messages")))


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the messages of one answer of the model."""
    return list(_messages(answer))


def _messages(events: Any) -> Iterator[TranscriptMessage]:
    """Yield the events that have content; those with a change of state only are no messages."""
    for event in events if isinstance(events, list | tuple) else ():
        content = event.get("content") if isinstance(event, Mapping) else None
        if not isinstance(content, Mapping):
            continue
        parts = tuple(_part(part) for part in content.get("parts") or () if isinstance(part, Mapping))
        role, author = _role(content, parts), event.get("author")
        if role == "tool":  # results of calls that were made at once: a message for each
            yield from (TranscriptMessage(role=role, parts=(part,), author=author) for part in parts)
        elif parts:
            yield TranscriptMessage(role=role, parts=parts, author=None if author == role else author)


def _role(content: Mapping[str, Any], parts: Sequence[MessagePart]) -> Any:
    if any(isinstance(part, ToolResponsePart) for part in parts):
        return "tool"
    return "user" if content.get("role") == "user" else "assistant"


def _part(part: Mapping[str, Any]) -> MessagePart:
    match part:
        case {"function_call": Mapping() as call}:
            return ToolCallPart(
                id=str(call.get("id", "")), name=str(call.get("name")), arguments=dict(call.get("args") or {})
            )
        case {"function_response": Mapping() as answer}:
            response = answer.get("response") or {}
            shown = response["result"] if response.keys() == {"result"} else response
            return ToolResponsePart(
                id=str(answer.get("id", "")),
                name=str(answer.get("name")),
                content=(TextPart(content=as_text(shown)),),
                is_error="error" in response,
            )
        case {"text": str() as text, "thought": True}:
            return ReasoningPart(content=text, provider="google")
        case {"text": str() as text}:
            return TextPart(content=text)
        case {"inline_data": Mapping() as data} if isinstance(data.get("data"), bytes):
            return BlobPart(mime_type=str(data.get("mime_type")), data=data["data"])
        case {"file_data": Mapping() as data}:
            return UriPart(uri=str(data.get("file_uri")), mime_type=data.get("mime_type"))
        case _:
            return GenericPart(type=next(iter(part), "part"), values=dict(part))
