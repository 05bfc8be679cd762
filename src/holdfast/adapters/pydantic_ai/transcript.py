"""The conversation of a Pydantic AI session, in neutral form. Imports nothing of Pydantic AI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.adapters.base.conversion import native_messages, place_messages
from holdfast.adapters.base.session_transcript import build_transcript
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

_ROLES = {"system-prompt": "system", "user-prompt": "user", "tool-return": "tool", "retry-prompt": "tool"}
_ERRORS = ("failed", "retried", "denied")


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, messages_of_answer)


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    stored = state.get("messages")
    found: list[TranscriptMessage] = []
    instructions: Any = None
    for message in stored or ():
        if not isinstance(message, Mapping):
            continue
        given = message.get("instructions")
        if given != instructions and isinstance(given, str) and given:  # each request repeats them
            found.append(TranscriptMessage(role="system", parts=text_parts(given)))
            instructions = given
        found += _messages(message)
    return found


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the messages of one answer of the model."""
    return list(_messages(answer)) if isinstance(answer, Mapping) else []


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the state that `resumable(agent, session_id=...)` continues."""
    made = [_native_message(message, options.seed) for message in transcript]
    return place_messages([*native_messages(options), *made], options, {})


def _native_message(message: TranscriptMessage, run_id: str) -> dict[str, Any]:
    """Return a message in Pydantic AI's JSON form. Times are left out: they are not known."""
    if message.role == "assistant":
        return {"kind": "response", "run_id": run_id, "parts": [_native_response_part(part) for part in message.parts]}
    if message.role == "tool":
        return {
            "kind": "request",
            "run_id": run_id,
            "parts": [_native_return(tool_response) for tool_response in message.tool_responses],
        }
    content = _native_content(message.parts)
    return {"kind": "request", "run_id": run_id, "parts": [{"part_kind": "user-prompt", "content": content}]}


def _native_response_part(part: MessagePart) -> dict[str, Any]:
    match part:
        case ToolCallPart():
            called = {"tool_name": part.name, "args": dict(part.arguments or {}), "tool_call_id": part.id}
            return {"part_kind": "tool-call", **called}
        case ReasoningPart():
            return {"part_kind": "thinking", "content": part.content}
        case TextPart():
            return {"part_kind": "text", "content": part.content}
        case _:
            return {"part_kind": "text", "content": f"[{part.kind}]"}


def _native_return(part: ToolResponsePart) -> dict[str, Any]:
    answer = {"tool_name": part.name, "tool_call_id": part.id, "content": _native_content(part.content)}
    return {"part_kind": "tool-return", **answer, **({"outcome": "failed"} if part.is_error else {})}


def _native_content(parts: Sequence[MessagePart]) -> Any:
    listed = [_native_file(part) for part in parts]
    return listed[0] if len(listed) == 1 and isinstance(listed[0], str) else listed


def _native_file(part: MessagePart) -> Any:
    match part:
        case TextPart():
            return part.content
        case BlobPart():
            return {"kind": "binary", "data": part.data, "media_type": part.mime_type}
        case UriPart():
            is_image = part.mime_type is None or part.mime_type.startswith("image/")
            kind = "image-url" if is_image else "document-url"
            # Pydantic AI guesses the type of a link by its ending, and fails if it can't.
            return {"kind": kind, "url": part.uri, "media_type": part.mime_type or "image/*"}
        case _:
            return f"[{part.kind}]"


def _messages(message: Mapping[str, Any]) -> Iterator[TranscriptMessage]:
    """Yield a message in neutral form; a request has parts of several roles, and becomes several."""
    parts = [part for part in message.get("parts") or () if isinstance(part, Mapping)]
    if message.get("kind") == "response":
        yield TranscriptMessage(
            role="assistant",
            parts=tuple(response_part for part in parts for response_part in _response_parts(part)),
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
            yield from _secrets(part)
            written = part.get("args")
            arguments = {} if written is None else written
            yield call_of(part.get("tool_call_id"), part.get("tool_name"), arguments, hosted=kind != "tool-call")
        case "builtin-tool-return" | "native-tool-return":
            content = tuple(_content_parts(part.get("content")))
            yield ToolResponsePart(id=str(part.get("tool_call_id")), name=str(part.get("tool_name")), content=content)
        case "file":
            yield from _content_parts(part.get("content"))
        case "compaction" if isinstance(part.get("content"), str):
            yield CompactionPart(content=part["content"])
        case other:
            yield GenericPart(
                type=str(other), values={name: value for name, value in part.items() if name != "part_kind"}
            )


def _secrets(part: Mapping[str, Any]) -> Iterator[MessagePart]:
    """Yield the signatures that a provider has put beside a call."""
    details = part.get("provider_details")
    for name, value in details.items() if isinstance(details, Mapping) else ():
        if value and "signature" in str(name):
            yield ReasoningPart(provider=part.get("provider_name"), signature=as_text(value))


def _content_parts(content: Any) -> Iterator[MessagePart]:
    """Yield a content: a text, a file, or a list of them. The model reads other values as JSON."""
    if isinstance(content, str):
        yield from text_parts(content)
    elif isinstance(content, list | tuple) and any(_is_file(item) for item in content):
        for item in content:
            yield from _content_parts(item)
    elif _is_file(content):
        yield _file_part(content)
    elif isinstance(content, list) and content and all(isinstance(item, str) for item in content):
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
            is_known = isinstance(media_type, str) and media_type != "image/*"
            return UriPart(uri=str(content["url"]), mime_type=media_type if is_known else None)
