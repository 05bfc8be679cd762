"""The conversation of a Haystack session, in neutral form. Imports nothing of Haystack."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.adapters.base.conversion import native_messages, place_messages
from holdfast.adapters.base.session_transcript import build_transcript, parts_of_text
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    ROLES,
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
    text_parts,
)
from holdfast.model.conversion_target import ConversionOptions, ConvertedState
from holdfast.model.provider_names import valid_name
from holdfast.model.transcript_repair import as_text

CONTEXT = "context"
"""The key that has the spans of messages which the next run begins with."""
_FILES = {"image": "base64_image", "file": "base64_data"}  # by kind of part: the field with the data
_NO_TYPE = {"image": "image/jpeg", "file": ""}  # what Haystack takes data without a media type for


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(
        checkpoint, messages_of_state, messages_of_answer, parts_of_result=parts_of_result, state_of=_state_of
    )


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    return _messages(state.get("messages"))


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the replies of one answer of the model."""
    replies = answer.get("replies") if isinstance(answer, Mapping) else None
    stored = replies if isinstance(replies, list | tuple) else []
    return _messages([item.get("fields") for item in stored if isinstance(item, Mapping)])


def parts_of_result(result: Any) -> Sequence[MessagePart]:
    """Return the parts of a recorded result, as the model reads it."""
    match result:
        case {"holdfast_failed": text} | {"holdfast_told": text} | {"holdfast_changes": _, "result": text}:
            return parts_of_text(text)
        case _:
            return parts_of_text(result)


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the state that `resumable(agent, session_id=...)` continues.

    If a hook has shortened what the model reads of the earlier state, it reads the new messages, too.
    """
    before = native_messages(options)
    origins = {call.id: call for item in _messages(before) for call in item.tool_calls}
    origins |= {call.id: call for item in transcript for call in item.tool_calls}
    messages = [*before, *(item for message in transcript for item in _native_messages(message, origins))]
    made = place_messages(messages, options, {})
    spans = made.state.get(CONTEXT)
    if isinstance(spans, list):
        return replace(made, state={**made.state, CONTEXT: [*spans, [len(before), len(messages)]]})
    return replace(made, state={**made.state, CONTEXT: None})


def _native_messages(message: TranscriptMessage, origins: Mapping[str, ToolCallPart]) -> Iterator[dict[str, Any]]:
    """Yield a message in the form of Haystack; for results, one for each.

    An answer has one text: generators send the first only.
    """
    match message.role:
        case "tool":
            for part in message.tool_responses:
                yield _native_message("tool", [_native_result(part, origins)])
        case "assistant":
            thoughts = [part.content for part in message.parts if isinstance(part, ReasoningPart)]
            texts = [part.content for part in message.parts if isinstance(part, TextPart)]
            content = [
                *([{"reasoning": {"reasoning_text": "\n\n".join(thoughts), "extra": {}}}] if thoughts else ()),
                *([{"text": "\n\n".join(texts)}] if texts else ()),
                *({"tool_call": _native_call(call)} for call in message.tool_calls),
            ]
            # The name is sent to the model's provider, which may refuse others.
            yield _native_message("assistant", content, valid_name(message.author) if message.author else None)
        case _:
            yield _native_message("user", [_native_part(part) for part in message.parts])


def _native_message(role: str, content: Sequence[Mapping[str, Any]], name: str | None = None) -> dict[str, Any]:
    return {"role": role, "meta": {}, "name": name, "content": list(content)}


def _native_call(call: ToolCallPart) -> dict[str, Any]:
    return {"tool_name": call.name, "arguments": dict(call.arguments or {}), "id": call.id, "extra": None}


def _native_result(part: ToolResponsePart, origins: Mapping[str, ToolCallPart]) -> dict[str, Any]:
    origin = origins.get(part.id) or ToolCallPart(id=part.id, name=part.name)
    is_text = all(isinstance(item, TextPart) for item in part.content)
    texts = "\n\n".join(item.content for item in part.content if isinstance(item, TextPart))
    result = texts if is_text else [_native_part(item) for item in part.content]
    return {"tool_call_result": {"result": result, "origin": _native_call(origin), "error": part.is_error}}


def _native_part(part: MessagePart) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"text": part.content}
        case BlobPart():
            # Not validated: Haystack would refuse images of types that it does not know.
            about: dict[str, Any] = {"mime_type": part.mime_type or None, "validation": False}
            data = base64.b64encode(part.data or b"").decode()
            if part.mime_type.startswith("image/"):
                return {"image": {"base64_image": data, **about, "detail": None, "meta": {}}}
            return {"file": {"base64_data": data, **about, "filename": None, "extra": {}}}
        case UriPart():
            return {"text": f"[not carried over: link: {part.uri:.200}]"}
        case _:
            return {"text": f"[{part.kind}]"}


def _state_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in state.items() if name not in ("messages", CONTEXT)}


def _messages(stored: Any) -> list[TranscriptMessage]:
    found = stored if isinstance(stored, list | tuple) else []
    return [_message(item) for item in found if isinstance(item, Mapping)]


def _message(stored: Mapping[str, Any]) -> TranscriptMessage:
    meta = stored.get("meta")
    about = meta if isinstance(meta, Mapping) else {}
    role, usage = str(stored.get("role")), about.get("usage")
    content = stored.get("content")
    return TranscriptMessage(
        role=role if role in ROLES else "user",
        parts=tuple(_parts(content if isinstance(content, list | tuple) else [])),
        author=name if isinstance(name := stored.get("name"), str) else None,
        finish_reason=about.get("finish_reason"),
        model=about.get("model"),
        usage=usage if isinstance(usage, Mapping) else None,
    )


def _parts(content: Sequence[Any]) -> Iterator[MessagePart]:
    for part in content:
        for kind, value in part.items() if isinstance(part, Mapping) else ():
            yield from _part(str(kind), value)


def _part(kind: str, value: Any) -> Iterator[MessagePart]:
    fields: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    if kind == "text":
        yield from text_parts(value)
    elif kind == "reasoning":
        yield ReasoningPart(content=str(fields.get("reasoning_text") or ""), encrypted=_extra(fields))
    elif kind == "tool_call":
        secret = _extra(fields)
        if secret is not None:
            yield ReasoningPart(encrypted=secret)
        yield _call(fields)
    elif kind == "tool_call_result":
        origin = fields.get("origin")
        call = _call(origin if isinstance(origin, Mapping) else {})
        result = fields.get("result")
        content = tuple(text_parts(result) if isinstance(result, str) else _parts(result or ()))
        yield ToolResponsePart(id=call.id, name=call.name, content=content, is_error=bool(fields.get("error")))
    elif kind in _FILES:
        yield BlobPart(mime_type=str(fields.get("mime_type") or _NO_TYPE[kind]), data=_decode(fields.get(_FILES[kind])))
    else:
        yield GenericPart(type=kind, values=fields)


def _extra(fields: Mapping[str, Any]) -> str | None:
    """Return what only the provider of a part reads, such as signatures; None if there is nothing."""
    extra = fields.get("extra")
    return as_text(extra) if extra else None


def _call(fields: Mapping[str, Any]) -> ToolCallPart:
    name, arguments = str(fields.get("tool_name")), fields.get("arguments")
    is_object = isinstance(arguments, Mapping)
    return ToolCallPart(
        id=str(fields.get("id") or name),
        name=name,
        arguments=dict(arguments) if isinstance(arguments, Mapping) else None,
        raw_arguments=None if is_object else str(arguments),
    )


def _decode(data: Any) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else None
    except binascii.Error:
        return None
