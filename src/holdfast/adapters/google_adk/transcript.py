"""The conversation of a session of Google ADK, in neutral form. Imports nothing of ADK."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.adapters.base.conversion import native_messages, place_messages
from holdfast.adapters.base.session_transcript import build_transcript
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
from holdfast.model.conversion_target import ConversionOptions, ConvertedState
from holdfast.model.transcript_repair import as_text


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, messages_of_answer, state_of=_state_of)


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
        parts = tuple(
            item
            for part in content.get("parts") or ()
            if isinstance(part, Mapping)
            for item in (*_secret(part), _part(part))
        )
        role, author = _role(content, parts), event.get("author")
        if role == "tool":  # results of calls that were made at once: a message for each
            yield from (TranscriptMessage(role=role, parts=(part,), author=author) for part in parts)
        elif parts:
            yield TranscriptMessage(role=role, parts=parts, author=None if author == role else author)


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the state that `resumable(agent, session_id=...)` continues.

    ADK shows a model what other agents said as text, without images. So everything is said by the
    agent `agent_id`. Values that are carried over are the session's state.
    """
    before = native_messages(options)
    events = [_event(message, number, options) for number, message in enumerate(transcript, len(before))]
    made = place_messages([*before, *events], options, {})
    known = made.state.get("state")
    state = {**(known if isinstance(known, Mapping) else {}), **options.carried}
    return replace(made, state={**made.state, "state": state}, left=())


def _event(message: TranscriptMessage, number: int, options: ConversionOptions) -> dict[str, Any]:
    role = "model" if message.role == "assistant" else "user"
    author = "user" if message.role == "user" else options.agent_id
    return {
        "id": f"{options.seed}-{number}",
        "timestamp": options.created_at,
        "invocation_id": f"converted-{options.seed}",
        "author": author,
        "content": {"role": role, "parts": [_native_part(part) for part in message.parts]},
    }


def _native_part(part: MessagePart) -> dict[str, Any]:
    match part:
        case ToolCallPart():
            return {"function_call": {"id": part.id, "name": part.name, "args": dict(part.arguments or {})}}
        case ToolResponsePart():
            text = "\n\n".join(item.content for item in part.content if isinstance(item, TextPart))
            media = [_native_part(item) for item in part.content if not isinstance(item, TextPart)]
            answer = {"id": part.id, "name": part.name, "response": {"error" if part.is_error else "result": text}}
            return {"function_response": {**answer, "parts": media} if media else answer}
        case ReasoningPart():
            return {"text": part.content, "thought": True}
        case BlobPart():
            return {"inline_data": {"mime_type": part.mime_type, "data": part.data}}
        case UriPart():
            typed = {} if part.mime_type is None else {"mime_type": part.mime_type}
            return {"file_data": {"file_uri": part.uri, **typed}}
        case TextPart():
            return {"text": part.content}
        case _:
            return {"text": f"[{part.kind}]"}


def _state_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    own = state.get("state")
    return dict(own) if isinstance(own, Mapping) else {}


def _role(content: Mapping[str, Any], parts: Sequence[MessagePart]) -> Any:
    if any(isinstance(part, ToolResponsePart) for part in parts):
        return "tool"
    return "user" if content.get("role") == "user" else "assistant"


def _secret(part: Mapping[str, Any]) -> Iterator[MessagePart]:
    """Yield what Gemini has thought before a part, which only it can read."""
    signature = part.get("thought_signature")
    if isinstance(signature, bytes) and signature:
        yield ReasoningPart(provider="google", signature=base64.b64encode(signature).decode())


def _part(part: Mapping[str, Any]) -> MessagePart:
    match part:
        case {"function_call": Mapping() as call}:
            return ToolCallPart(
                id=str(call.get("id", "")), name=str(call.get("name")), arguments=dict(call.get("args") or {})
            )
        case {"function_response": Mapping() as answer}:
            response = answer.get("response") or {}
            shown = response["result"] if response.keys() == {"result"} else response
            if response.keys() == {"error"}:
                shown = response["error"]
            media = tuple(_part(item) for item in answer.get("parts") or () if isinstance(item, Mapping))
            is_only_media = bool(media) and shown in ("", {})
            return ToolResponsePart(
                id=str(answer.get("id", "")),
                name=str(answer.get("name")),
                content=(*(() if is_only_media else (TextPart(content=as_text(shown)),)), *media),
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
