"""The conversation of an AutoGen session, in neutral form. Imports nothing of AutoGen."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from holdfast.adapters.autogen.shared_messages import restore_shared
from holdfast.adapters.base.conversion import is_picture, native_messages, place_messages
from holdfast.adapters.base.session_transcript import build_transcript
from holdfast.errors import UsageError
from holdfast.model.chat_messages import blob_of, call_of, content_parts
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
    text_parts,
)
from holdfast.model.conversion_target import ConversionOptions, ConvertedState

USER = "user"


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, messages_of_answer, state_of=lambda _: {})


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    """Return the messages of all turns; of a state that was saved by hand, those that AutoGen keeps."""
    messages = state.get("messages") or _native_messages(state.get("native"))
    return [_message(message) for message in messages if isinstance(message, Mapping)]


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the message of one answer of the model."""
    if not isinstance(answer, Mapping):
        return []
    return [TranscriptMessage(role="assistant", parts=(*_read_thought(answer), *_parts(answer.get("content"))))]


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the state that `resumable(agent, session_id=...)` continues.

    `messages` are what AutoGen's result would list; the model's context has the same, as the agent
    itself has said and heard it.
    """
    before = native_messages(options)
    converted = [
        {**item, "id": f"{options.seed}-{number}", "created_at": _time(options.created_at)}
        for number, item in enumerate(
            (event for message in transcript for event in _events(message, options)), len(before)
        )
    ]
    state = place_messages([*before, *converted], options, {})
    context = [item for message in transcript for item in _context_of(message, options)]
    native = (options.native or {}).get("native")
    known: Any = None
    if isinstance(native, Mapping):
        if not isinstance(native.get("llm_context"), Mapping):
            raise UsageError("the earlier state is that of a team: its agents have conversations of their own")
        authors = {item.get("source") for item in before if isinstance(item, Mapping)} - {USER}
        known = restore_shared(native, before, str(next(iter(authors), "")) if len(authors) <= 1 else "")
    made = known or {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {}}
    kept = made["llm_context"].get("messages") or []
    made = {**made, "llm_context": {**made["llm_context"], "messages": [*kept, *context]}}
    return replace(state, state={**state.state, "native": made})


def _events(message: TranscriptMessage, options: ConversionOptions) -> Iterator[dict[str, Any]]:
    source = USER if message.role == "user" else message.author or options.agent_id
    if message.role == "tool":
        results = [_native_result(part) for part in message.tool_responses]
        yield {"type": "ToolCallExecutionEvent", "source": source, "content": results}
        return
    if message.role == "user":
        content = _native_content(message.parts)
        kind = "TextMessage" if isinstance(content, str) else "MultiModalMessage"
        yield {"type": kind, "source": source, "content": content}
        return
    thought, text = _thought_and_text(message)
    if thought:
        yield {"type": "ThoughtEvent", "source": source, "content": thought}
    if message.tool_calls:
        yield {"type": "ToolCallRequestEvent", "source": source, "content": [*map(_native_call, message.tool_calls)]}
    elif text:
        yield {"type": "TextMessage", "source": source, "content": text}


def _context_of(message: TranscriptMessage, options: ConversionOptions) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        results = [_native_result(part) for part in message.tool_responses]
        yield {"type": "FunctionExecutionResultMessage", "content": results}
    elif message.role == "user":
        yield {"type": "UserMessage", "source": USER, "content": _native_content(message.parts)}
    else:
        thought, text = _thought_and_text(message)
        content = [*map(_native_call, message.tool_calls)] if message.tool_calls else text
        made = {"type": "AssistantMessage", "source": message.author or options.agent_id, "content": content}
        yield {**made, "thought": thought} if thought else made


def _thought_and_text(message: TranscriptMessage) -> tuple[str, str]:
    """Return what AutoGen calls the thought of an answer, and its text.

    Beside calls, an answer has no text: that is its thought, which models are sent as text.
    """
    thoughts = [part.content for part in message.parts if isinstance(part, ReasoningPart)]
    text = "\n\n".join(part.content for part in message.parts if isinstance(part, TextPart))
    if message.tool_calls:
        return "\n\n".join([*thoughts, *([text] if text else [])]), ""
    return "\n\n".join(thoughts), text


def _native_content(parts: Sequence[MessagePart]) -> Any:
    listed = [
        {"data": base64.b64encode(part.data or b"").decode()}
        if isinstance(part, BlobPart) and is_picture(part)
        else _text_of(part)
        for part in parts
    ]
    return listed[0] if len(listed) == 1 and isinstance(listed[0], str) else listed


def _text_of(part: MessagePart) -> str:
    if isinstance(part, BlobPart):  # AutoGen would fail to load it
        return f"[not carried over: {part.mime_type}]"
    return part.content if isinstance(part, TextPart) else f"[{part.kind}]"


def _native_call(call: ToolCallPart) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False, default=str)
    return {"id": call.id, "name": call.name, "arguments": arguments}


def _native_result(part: ToolResponsePart) -> dict[str, Any]:
    text = "\n\n".join(item.content for item in part.content if isinstance(item, TextPart))
    return {"content": text, "name": part.name, "call_id": part.id, "is_error": part.is_error}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _native_messages(native: Any) -> Sequence[Any]:
    """Return the thread of a team's manager, or the context of an agent's model."""
    if not isinstance(native, Mapping):
        return ()
    for state in (native.get("agent_states") or {}).values():
        if isinstance(state, Mapping) and state.get("message_thread"):
            return list(state["message_thread"])
    context = native.get("llm_context")
    return list(context.get("messages") or ()) if isinstance(context, Mapping) else ()


def _message(message: Mapping[str, Any]) -> TranscriptMessage:
    kind, source, content = message.get("type"), message.get("source"), message.get("content")
    id_ = message.get("id")
    author = source if isinstance(source, str) and source != USER else None
    parts: tuple[MessagePart, ...]
    if kind in ("ToolCallExecutionEvent", "FunctionExecutionResultMessage"):
        role, parts = "tool", tuple(_responses(content))
    else:
        role = "system" if kind == "SystemMessage" else "user" if source == USER else "assistant"
        parts = (ReasoningPart(content=str(content)),) if kind == "ThoughtEvent" else tuple(_parts(content))
    return TranscriptMessage(
        role=role,
        parts=(*_read_thought(message), *parts),
        id=id_ if isinstance(id_, str) else None,
        author=author,
        created_at=message.get("created_at"),
        usage=message.get("models_usage"),
        ext={"type": kind} if kind is not None else {},
    )


def _read_thought(message: Mapping[str, Any]) -> tuple[MessagePart, ...]:
    return (ReasoningPart(content=str(message["thought"])),) if message.get("thought") else ()


def _responses(content: Any) -> Iterator[MessagePart]:
    for item in content if isinstance(content, list) else ():
        if isinstance(item, Mapping):
            yield ToolResponsePart(
                id=str(item.get("call_id") or ""),
                name=str(item.get("name") or ""),
                content=tuple(content_parts(item.get("content"))),
                is_error=bool(item.get("is_error")),
            )


def _parts(content: Any) -> Iterator[MessagePart]:
    """Yield the parts of a content: a text, calls, or texts and images."""
    if isinstance(content, str):
        yield from text_parts(content)
    elif isinstance(content, list):
        for item in content:
            if isinstance(item, Mapping) and "arguments" in item:
                yield call_of(item.get("id") or "", item.get("name") or "", item["arguments"])
            elif isinstance(item, Mapping) and "data" in item:
                yield blob_of("image/png", item["data"])
            else:
                yield TextPart(content=str(item))
    elif isinstance(content, Mapping):
        yield GenericPart(type="structured", values=content)
