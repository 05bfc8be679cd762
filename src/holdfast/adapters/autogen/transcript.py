"""The conversation of an AutoGen session, in neutral form. Imports nothing of AutoGen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.adapters.base.recorded import build_transcript
from holdfast.model.chat_messages import blob_of, content_parts
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
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
from holdfast.model.transcript import parse_object

USER = "user"


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, messages_of_answer)


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    """Return the messages of all turns; of a state that was saved by hand, those that AutoGen keeps."""
    messages = state.get("messages") or _native_messages(state.get("native"))
    return [_message(one) for one in messages if isinstance(one, Mapping)]


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the message of one answer of the model."""
    if not isinstance(answer, Mapping):
        return []
    return [TranscriptMessage(role="assistant", parts=(*_thought(answer), *_parts(answer.get("content"))))]


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
        parts=(*_thought(message), *parts),
        id=id_ if isinstance(id_, str) else None,
        author=author,
        created_at=message.get("created_at"),
        usage=message.get("models_usage"),
        ext={"type": kind} if kind is not None else {},
    )


def _thought(message: Mapping[str, Any]) -> tuple[MessagePart, ...]:
    return (ReasoningPart(content=str(message["thought"])),) if message.get("thought") else ()


def _responses(content: Any) -> Iterator[MessagePart]:
    for one in content if isinstance(content, list) else ():
        if isinstance(one, Mapping):
            yield ToolResponsePart(
                id=str(one.get("call_id") or ""),
                name=str(one.get("name") or ""),
                content=tuple(content_parts(one.get("content"))),
                is_error=bool(one.get("is_error")),
            )


def _parts(content: Any) -> Iterator[MessagePart]:
    """Yield the parts of a content: a text, calls, or texts and images."""
    if isinstance(content, str):
        yield from text_parts(content)
    elif isinstance(content, list):
        for one in content:
            if isinstance(one, Mapping) and "arguments" in one:
                yield _call(one)
            elif isinstance(one, Mapping) and "data" in one:
                yield blob_of("image/png", one["data"])
            else:
                yield TextPart(content=str(one))
    elif isinstance(content, Mapping):
        yield GenericPart(type="structured", values=content)


def _call(call: Mapping[str, Any]) -> ToolCallPart:
    written = call["arguments"]
    arguments = parse_object(written)
    return ToolCallPart(
        id=str(call.get("id") or ""),
        name=str(call.get("name") or ""),
        arguments=arguments,
        raw_arguments=str(written) if arguments is None else None,
    )
