"""The conversation of an agent-framework session, in neutral form. Imports nothing of the framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.adapters.base.session import TURN
from holdfast.adapters.base.session_transcript import build_transcript
from holdfast.model.chat_messages import call_of, content_parts, data_uri, uri_or_blob
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    BlobPart,
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
)
from holdfast.model.conversion_target import ConversionOptions, ConvertedState

SOURCE = "in_memory"
"""The id of the history provider that an agent has if its program gives none."""
UNKNOWN_TYPE = "application/x-unknown"
"""The media type of a link whose type is not known: the framework wants one."""
_ROLES = ("system", "user", "assistant", "tool")


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(
        checkpoint,
        messages_of_state,
        messages_of_answer,
        state_of=_state_of,
        pending_of=lambda _: _pending_of(checkpoint),
    )


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    """Return the messages of a session, of a history, or of the agents of a workflow."""
    listed = state.get("messages") or _read_session(state.get("session")) or _read_workflow(state.get("checkpoint"))
    return list(_messages(listed))


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the messages of one answer of the model."""
    return list(_messages(answer.get("messages") if isinstance(answer, Mapping) else None))


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the state that `resumable(agent, session_id=...)` continues."""
    native = (options.native or {}).get("session")
    first: dict[str, Any] = {"type": "session", "service_session_id": None}
    known = dict(native) if isinstance(native, Mapping) else first
    state = dict(known.get("state") or {})
    source = next(
        (name for name, value in state.items() if isinstance(value, Mapping) and value.get("messages")), SOURCE
    )
    history = dict(state.get(source) or {})
    history["messages"] = [*(history.get("messages") or ()), *(_native_message(message) for message in transcript)]
    session = {**known, "session_id": options.session_id, "state": {**state, source: history}}
    return ConvertedState(state={TURN: None, "session": session}, left=tuple(options.carried))


def _native_message(message: TranscriptMessage) -> dict[str, Any]:
    made = {"type": "message", "role": message.role, "contents": [_native_content(part) for part in message.parts]}
    author = {} if message.author is None else {"author_name": message.author}
    return {**made, **author, "additional_properties": {}}


def _native_content(part: MessagePart) -> dict[str, Any]:
    match part:
        case ToolCallPart():
            called = {"call_id": part.id, "name": part.name, "arguments": dict(part.arguments or {})}
            return {"type": "function_call", **called, "additional_properties": {}}
        case ToolResponsePart():
            text = "\n\n".join(item.content for item in part.content if isinstance(item, TextPart))
            items = [_native_content(item) for item in part.content]
            failed = {"exception": text or "failed"} if part.is_error else {}
            answer = {"type": "function_result", "call_id": part.id, "result": text, "items": items}
            return {**answer, **failed, "additional_properties": {}}
        case ReasoningPart():
            return {"type": "text_reasoning", "text": part.content, "additional_properties": {}}
        case BlobPart():
            data = {"type": "data", "uri": data_uri(part), "media_type": part.mime_type}
            return {**data, "additional_properties": {}}
        case UriPart():
            link = {"type": "uri", "uri": part.uri, "media_type": part.mime_type or UNKNOWN_TYPE}
            return {**link, "additional_properties": {}}
        case TextPart():
            return {"type": "text", "text": part.content, "additional_properties": {}}
        case _:
            return {"type": "text", "text": f"[{part.kind}]", "additional_properties": {}}


def _state_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what providers of a session keep beside the conversation, and the state of a workflow."""
    session = state.get("session")
    kept = session.get("state") if isinstance(session, Mapping) else None
    found = {}
    for name, item in kept.items() if isinstance(kept, Mapping) else ():
        rest = {key: of_key for key, of_key in item.items() if key != "messages"} if isinstance(item, Mapping) else item
        if rest:
            found[str(name)] = rest
    return found | ({"checkpoint": state["checkpoint"]} if "checkpoint" in state else {})


def _pending_of(checkpoint: Checkpoint) -> Sequence[str]:
    """Return the workflow that was cut off: where it stands is not in the conversation."""
    state = checkpoint.execution_state
    return ("workflow",) if isinstance(state, Mapping) and "checkpoint" in state else ()


def _read_session(session: Any) -> Sequence[Any]:
    kept = session.get("state") if isinstance(session, Mapping) else None
    for item in kept.values() if isinstance(kept, Mapping) else ():
        if isinstance(item, Mapping) and item.get("messages"):
            return list(item["messages"])
    return ()


def _read_workflow(checkpoint: Any) -> Sequence[Any]:
    """Return the longest conversation of an agent in a workflow."""
    state = checkpoint.get("state") if isinstance(checkpoint, Mapping) else None
    executors = state.get("_executor_state") if isinstance(state, Mapping) else None
    found: Sequence[Any] = ()
    for executor in executors.values() if isinstance(executors, Mapping) else ():
        conversation = executor.get("full_conversation") if isinstance(executor, Mapping) else None
        if isinstance(conversation, list) and len(conversation) > len(found):
            found = [message.get("value") if isinstance(message, Mapping) else None for message in conversation]
    return found


def _messages(listed: Any) -> Iterator[TranscriptMessage]:
    for message in listed if isinstance(listed, list | tuple) else ():
        if not isinstance(message, Mapping):
            continue
        parts = tuple(_parts(message.get("contents")))
        role = message.get("role")
        if any(isinstance(part, ToolResponsePart) for part in parts):
            role = "tool"
        author, id_ = message.get("author_name"), message.get("message_id")
        yield TranscriptMessage(
            role=role if role in _ROLES else "user",
            parts=parts,
            id=id_ if isinstance(id_, str) else None,
            author=author if isinstance(author, str) and role == "assistant" else None,
        )


def _parts(contents: Any) -> Iterator[MessagePart]:
    for content in contents if isinstance(contents, list | tuple) else ():
        if isinstance(content, str):
            yield TextPart(content=content)
        elif isinstance(content, Mapping) and content.get("type") != "usage":
            yield _part(content)


def _part(content: Mapping[str, Any]) -> MessagePart:
    match content.get("type"):
        case "text":
            return TextPart(content=str(content.get("text") or ""))
        case "text_reasoning":
            return ReasoningPart(content=str(content.get("text") or ""), encrypted=content.get("protected_data"))
        case "function_call":
            return call_of(content.get("call_id") or "", content.get("name") or "", content.get("arguments"))
        case "function_result":
            items = content.get("items")
            listed = _parts(items) if isinstance(items, list) and items else content_parts(content.get("result"))
            return ToolResponsePart(
                id=str(content.get("call_id") or ""),
                content=tuple(listed),
                is_error=content.get("exception") is not None,
            )
        case "data" | "uri":
            found = uri_or_blob(str(content.get("uri") or ""))
            media_type = content.get("media_type")
            if isinstance(found, UriPart) and isinstance(media_type, str) and media_type != UNKNOWN_TYPE:
                return replace(found, mime_type=media_type)
            return found
        case "hosted_file":
            return FilePart(file_id=str(content.get("file_id") or ""))
        case other:
            return GenericPart(type=str(other), values={key: value for key, value in content.items() if key != "type"})
