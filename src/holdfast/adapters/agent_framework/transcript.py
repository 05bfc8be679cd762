"""The conversation of an agent-framework session, in neutral form. Imports nothing of the framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.adapters.base.recorded import build_transcript
from holdfast.model.chat_messages import content_parts, uri_or_blob
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    FilePart,
    GenericPart,
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptMessage,
)
from holdfast.model.transcript import parse_object

_ROLES = ("system", "user", "assistant", "tool")


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, messages_of_answer)


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    """Return the messages of a session, of a history, or of the agents of a workflow."""
    listed = state.get("messages") or _of_session(state.get("session")) or _of_workflow(state.get("checkpoint"))
    return list(_messages(listed))


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the messages of one answer of the model."""
    return list(_messages(answer.get("messages") if isinstance(answer, Mapping) else None))


def _of_session(session: Any) -> Sequence[Any]:
    kept = session.get("state") if isinstance(session, Mapping) else None
    for one in kept.values() if isinstance(kept, Mapping) else ():
        if isinstance(one, Mapping) and one.get("messages"):
            return list(one["messages"])
    return ()


def _of_workflow(checkpoint: Any) -> Sequence[Any]:
    """Return the longest conversation of an agent in a workflow."""
    state = checkpoint.get("state") if isinstance(checkpoint, Mapping) else None
    executors = state.get("_executor_state") if isinstance(state, Mapping) else None
    found: Sequence[Any] = ()
    for one in executors.values() if isinstance(executors, Mapping) else ():
        said = one.get("full_conversation") if isinstance(one, Mapping) else None
        if isinstance(said, list) and len(said) > len(found):
            found = [message.get("value") if isinstance(message, Mapping) else None for message in said]
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
            written = content.get("arguments")
            arguments = parse_object(written)
            return ToolCallPart(
                id=str(content.get("call_id") or ""),
                name=str(content.get("name") or ""),
                arguments=arguments,
                raw_arguments=str(written) if arguments is None else None,
            )
        case "function_result":
            return ToolResponsePart(
                id=str(content.get("call_id") or ""),
                content=tuple(content_parts(content.get("result"))),
                is_error=content.get("exception") is not None,
            )
        case "data" | "uri":
            return uri_or_blob(str(content.get("uri") or ""))
        case "hosted_file":
            return FilePart(file_id=str(content.get("file_id") or ""))
        case other:
            return GenericPart(type=str(other), values={key: one for key, one in content.items() if key != "type"})
