"""The conversation of a Pydantic AI session, in neutral form. Imports nothing of Pydantic AI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.adapters.base.recorded import build_transcript
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
    text_parts,
)
from holdfast.model.transcript import parse_object
from holdfast.model.transcript_repair import as_text

_ROLES = {"system-prompt": "system", "user-prompt": "user", "tool-return": "tool", "retry-prompt": "tool"}
_ERRORS = ("failed", "retried", "denied")


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, messages_of_answer)


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    stored = state.get("messages")
    return [one for message in stored or () if isinstance(message, Mapping) for one in _messages(message)]


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the messages of one answer of the model."""
    return list(_messages(answer)) if isinstance(answer, Mapping) else []


def _messages(message: Mapping[str, Any]) -> Iterator[TranscriptMessage]:
    """Yield a message in neutral form; a request has parts of several roles, and becomes several."""
    parts = [part for part in message.get("parts") or () if isinstance(part, Mapping)]
    if message.get("kind") == "response":
        yield TranscriptMessage(
            role="assistant",
            parts=tuple(one for part in parts for one in _response_parts(part)),
            created_at=message.get("timestamp"),
            finish_reason=message.get("finish_reason"),
            model=message.get("model_name"),
            provider=message.get("provider_name"),
            usage={name: value for name, value in (message.get("usage") or {}).items() if value},
        )
        return
    for part in parts:
        kind = part.get("part_kind")
        role = _ROLES.get(str(kind), "user")
        if role == "tool" and not part.get("tool_name"):
            role = "user"  # feedback about an answer, not about a call
        content = tuple(_content_parts(part.get("content")))
        if role == "tool":
            is_error = kind == "retry-prompt" or part.get("outcome") in _ERRORS
            answered = ToolResponsePart(
                id=str(part.get("tool_call_id")), name=str(part.get("tool_name")), content=content, is_error=is_error
            )
            content = (answered,)
        yield TranscriptMessage(role=role, parts=content, created_at=part.get("timestamp"))


def _response_parts(part: Mapping[str, Any]) -> Iterator[MessagePart]:
    match part.get("part_kind"):
        case "text":
            yield from text_parts(part.get("content"))
        case "thinking":
            provider, signature = part.get("provider_name"), part.get("signature")
            yield ReasoningPart(content=str(part.get("content") or ""), provider=provider, signature=signature)
        case "tool-call" | "builtin-tool-call" | "native-tool-call" as kind:
            written = part.get("args")
            arguments = {} if written is None else parse_object(written)
            yield ToolCallPart(
                id=str(part.get("tool_call_id")),
                name=str(part.get("tool_name")),
                arguments=arguments,
                raw_arguments=str(written) if arguments is None else None,
                hosted=kind != "tool-call",
            )
        case "builtin-tool-return" | "native-tool-return":
            content = tuple(_content_parts(part.get("content")))
            yield ToolResponsePart(id=str(part.get("tool_call_id")), name=str(part.get("tool_name")), content=content)
        case "file":
            yield from _content_parts(part.get("content"))
        case other:
            yield GenericPart(type=str(other), values={name: one for name, one in part.items() if name != "part_kind"})


def _content_parts(content: Any) -> Iterator[MessagePart]:
    """Yield a content: a text, a file, or a list of them. The model reads other values as JSON."""
    if isinstance(content, str):
        yield from text_parts(content)
    elif isinstance(content, list | tuple) and any(_is_file(one) for one in content):
        for one in content:
            yield from _content_parts(one)
    elif _is_file(content):
        yield _file_part(content)
    elif isinstance(content, list) and content and all(isinstance(one, str) for one in content):
        yield TextPart(content="\n".join(content))
    elif content is not None:
        yield TextPart(content=as_text(content))


def _is_file(content: Any) -> bool:
    if not isinstance(content, Mapping):
        return False
    kind = content.get("kind")
    return kind in ("binary", "uploaded-file") or (isinstance(kind, str) and kind.endswith("-url") and "url" in content)


def _file_part(content: Mapping[str, Any]) -> MessagePart:
    media_type = content.get("media_type")
    match content.get("kind"):
        case "binary":
            data = content.get("data")
            return BlobPart(mime_type=str(media_type), data=data if isinstance(data, bytes) else None)
        case "uploaded-file":
            return FilePart(file_id=str(content.get("file_id")), provider=content.get("provider_name"))
        case _:
            return UriPart(uri=str(content["url"]), mime_type=media_type)
