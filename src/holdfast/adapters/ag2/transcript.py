"""The conversation of an AG2 session, in neutral form. Imports nothing of AG2."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.adapters.base.conversion import native_messages, place_messages
from holdfast.adapters.base.session_transcript import MESSAGES, build_transcript
from holdfast.model.chat_messages import call_of
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    BlobPart,
    CompactionPart,
    FilePart,
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
from holdfast.model.transcript_repair import as_text

_TYPE = "$type"
_CONVERTED = "$converted"
_SECRETS = ("signature", "thought_signature", "encrypted_content", "redacted", "data")  # of reasoning
_NOT_STATE = (MESSAGES, "window", "since")  # the last two say which events of the list the model gets
_LINK_TYPES = {"document": "application/octet-stream", "audio": "audio/*", "video": "video/*"}
"""The media type of a link whose type is not known, by AG2's word for what it leads to."""


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(
        checkpoint,
        messages_of_state,
        messages_of_answer,
        state_of=lambda state: {name: value for name, value in state.items() if name not in _NOT_STATE},
    )


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    return list(_messages(state.get("messages")))


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the messages of one answer of the model."""
    if not isinstance(answer, Mapping):
        return []
    return list(_messages([*(answer.get("events") or ()), answer.get("response")]))


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the state that `resumable(agent, session_id=...)` continues."""
    # Without a time, AG2 would take that of each load. It is not when the message was said: the mark tells that.
    created = {"created_at": float(options.created_at), _CONVERTED: True}
    made = [{**_native_event(message), **created} for message in transcript]
    return place_messages([*native_messages(options), *made], options, {})


def _native_event(message: TranscriptMessage) -> dict[str, Any]:
    if message.role == "assistant":
        return _native_response(message)
    if message.role == "tool":
        return {
            _TYPE: "ToolResultsEvent",
            "results": [_native_result(tool_response) for tool_response in message.tool_responses],
        }
    return {_TYPE: "ModelRequest", "parts": [_native_input(part) for part in message.parts]}


def _native_response(message: TranscriptMessage) -> dict[str, Any]:
    made: dict[str, Any] = {_TYPE: "ModelResponse"}
    texts = [part.content for part in message.parts if isinstance(part, TextPart)]
    if texts:
        made["message"] = {_TYPE: "ModelMessage", "content": "\n\n".join(texts)}
    if message.tool_calls:
        made["tool_calls"] = {
            _TYPE: "ToolCallsEvent",
            "calls": [_native_call(tool_call) for tool_call in message.tool_calls],
        }
    return made


def _native_call(call: ToolCallPart) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False, default=str)
    return {_TYPE: "ToolCallEvent", "id": call.id, "name": call.name, "arguments": arguments}


def _native_result(part: ToolResponsePart) -> dict[str, Any]:
    result = {_TYPE: "ToolResult", "parts": [_native_input(item) for item in part.content]}
    made = {_TYPE: "ToolResultEvent", "parent_id": part.id, "name": part.name, "result": result}
    if not part.is_error:
        return made
    text = "\n".join(item.content for item in part.content if isinstance(item, TextPart))
    return {**made, _TYPE: "ToolErrorEvent", "error": {_TYPE: "error", "class": "Exception", "message": text}}


def _native_input(part: MessagePart) -> dict[str, Any]:
    match part:
        case TextPart():
            return {_TYPE: "TextInput", "content": part.content}
        case BlobPart():
            kind = _kind_of(part.mime_type)
            return {_TYPE: "BinaryInput", "data": part.data, "media_type": part.mime_type, "kind": kind}
        case UriPart():
            link = {_TYPE: "UrlInput", "url": part.uri, "kind": _kind_of(part.mime_type or "image/*")}
            return link if part.mime_type is None else {**link, "metadata": {"media_type": part.mime_type}}
        case _:
            return {_TYPE: "TextInput", "content": f"[{part.kind}]"}


def _kind_of(mime_type: str) -> str:
    """Return AG2's word for what a file is: providers take an image or a document by it."""
    kind = mime_type.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"


def _messages(events: Any) -> Iterator[TranscriptMessage]:
    """Yield the events that are messages. A result that is in a batch, too, is yielded once."""
    listed = _list(events)
    batches = [_list(item.get("results")) for item in listed if item.get(_TYPE) == "ToolResultsEvent"]
    batched = {result.get("parent_id") for batch in batches for result in batch}
    for event in listed:
        found = _role_and_parts(event, batched)
        if found is not None:
            known: dict[str, Any] = {name: event.get(name) for name in ("finish_reason", "model", "provider")}
            yield TranscriptMessage(
                role=found[0], parts=tuple(found[1]), created_at=_time(event), usage=_usage(event.get("usage")), **known
            )


def _role_and_parts(event: Mapping[str, Any], batched: set[Any]) -> tuple[str, list[MessagePart]] | None:
    kind = str(event.get(_TYPE)).rpartition(".")[2]
    match kind:
        case "ModelRequest" | "DrainedModelRequest":
            return "user", [_input(item) for item in _list(event.get("parts"))]
        case "ModelResponse":
            return "assistant", list(_response(event))
        case "ToolResultsEvent":
            return "tool", [_result(item) for item in _list(event.get("results"))]
        case "CompactionSummary":
            return "user", [CompactionPart(content=str(event.get("summary")))]
        case "ToolCallEvent":
            return None
    if kind.endswith("ToolCallEvent") and "arguments" in event:  # a tool that the model's provider has carried out
        return "assistant", [_call(event, hosted=True)]
    if kind.endswith(("ToolResultEvent", "ToolErrorEvent")) and event.get("parent_id") not in batched:
        return "tool", [_result(event)]
    if kind.endswith("ReasoningEvent"):
        secrets = {name: value for name, value in event.items() if value and name in _SECRETS}
        hidden = as_text(secrets) if secrets else None
        return "assistant", [ReasoningPart(content=str(event.get("content") or ""), encrypted=hidden)]
    return None


def _response(event: Mapping[str, Any]) -> Iterator[MessagePart]:
    message, calls = event.get("message"), event.get("tool_calls")
    if isinstance(message, Mapping):
        yield from text_parts(str(message.get("content") or ""))
    for item in _list(calls.get("calls") if isinstance(calls, Mapping) else None):
        yield _call(item)
    for item in _list(event.get("files")):
        metadata = item.get("metadata")
        mime = metadata.get("media_type") if isinstance(metadata, Mapping) else None
        yield BlobPart(mime_type=str(mime or "application/octet-stream"), data=_bytes(item.get("data")))


def _call(call: Mapping[str, Any], *, hosted: bool = False) -> ToolCallPart:
    return call_of(call.get("id") or "", call.get("name") or "", call.get("arguments", "{}"), hosted=hosted)


def _result(event: Mapping[str, Any]) -> ToolResponsePart:
    result = event.get("result")
    return ToolResponsePart(
        id=str(event.get("parent_id") or ""),
        name=str(event.get("name") or ""),
        content=tuple(_input(item) for item in _list(result.get("parts") if isinstance(result, Mapping) else None)),
        is_error="error" in event,
    )


def _input(part: Mapping[str, Any]) -> MessagePart:
    match part.get(_TYPE):
        case "TextInput":
            return TextPart(content=str(part.get("content")))
        case "DataInput":
            return TextPart(content=as_text(part.get("data")))
        case "UrlInput":
            return UriPart(uri=str(part.get("url")), mime_type=_link_type(part))
        case "FileIdInput":
            return FilePart(file_id=str(part.get("file_id")))
        case "BinaryInput":
            return BlobPart(mime_type=str(part.get("media_type")), data=_bytes(part.get("data")))
        case other:
            return GenericPart(type=str(other), values={name: value for name, value in part.items() if name != _TYPE})


def _link_type(link: Mapping[str, Any]) -> str | None:
    metadata = link.get("metadata")
    known = metadata.get("media_type") if isinstance(metadata, Mapping) else None
    return known if isinstance(known, str) else _LINK_TYPES.get(str(link.get("kind")))


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _bytes(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _usage(value: Any) -> dict[str, Any] | None:
    return {name: item for name, item in value.items() if name != _TYPE} if isinstance(value, Mapping) else None


def _time(event: Mapping[str, Any]) -> str | None:
    seconds = event.get("created_at")
    if not isinstance(seconds, float) or _CONVERTED in event:
        return None
    try:
        return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return None
