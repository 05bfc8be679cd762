"""The conversation of a session of Strands, in neutral form. Imports nothing of Strands."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from holdfast.adapters.base.conversion import native_messages, place_messages
from holdfast.adapters.base.session_transcript import build_transcript, parts_of_text
from holdfast.errors import UsageError
from holdfast.model.chat_messages import message_of_chat
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

MESSAGES = "messages"
AGENTS = "agents"
_MEDIA = {"image": "image", "video": "video", "audio": "audio", "document": "application"}
_OFFICE = "application/vnd.openxmlformats-officedocument"
# Documents whose format is not the end of their media type.
_DOCUMENTS = {
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": f"{_OFFICE}.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}
# All formats that Strands takes, by their media types: the kind of block, and the format's name.
_FORMATS = {
    **{f"image/{item}": ("image", item) for item in ("png", "jpeg", "gif", "webp")},
    "image/jpg": ("image", "jpeg"),
    **{
        f"audio/{item}": ("audio", item) for item in ("mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mpeg", "webm")
    },
    **{f"video/{item}": ("video", item) for item in ("flv", "mkv", "mov", "mpeg", "mpg", "mp4", "webm", "wmv")},
    "application/pdf": ("document", "pdf"),
    **{mime_type: ("document", item) for item, mime_type in _DOCUMENTS.items()},
}
_IN_RESULTS = ("image", "document")


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(
        checkpoint, messages_of_state, messages_of_answer, parts_of_result=parts_of_result, state_of=_state_of
    )


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    """Return the messages of the agent; those of the other agents of a team follow, with their author."""
    found = list(_messages(state.get(MESSAGES)))
    for key, messages in state.items():
        first, _, path = str(key).partition(":")
        if first == MESSAGES and path and MESSAGES not in state:
            found += _messages(messages, path)
    return found


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the message of one answer of the model."""
    return list(_messages([answer.get("message")] if isinstance(answer, Mapping) else ()))


def parts_of_result(result: Any) -> Sequence[MessagePart] | None:
    """Return the parts of a recorded result; None if the tool waits for a person."""
    if isinstance(result, Mapping) and "interrupt" in result:
        return None
    if isinstance(result, Mapping) and isinstance(result.get("content"), list):
        return [_part(block) for block in result["content"] if isinstance(block, Mapping)]
    return parts_of_text(result)


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the state that `resumable(agent, session_id=...)` continues.

    Values that are carried over are in the agent's own state, if they are JSON: it takes no others.
    """
    if options.native is not None and not isinstance(options.native.get(MESSAGES), list):
        raise UsageError("the earlier state is that of a graph or a swarm: no agent of it is the one to continue")
    before = native_messages(options)
    made = place_messages([*before, *_native_messages(transcript, len(before))], options, {AGENTS: {"": {}}})
    agents = _mapping(made.state.get(AGENTS))
    agent = _mapping(agents.get(""))
    kept = {name: value for name, value in options.carried.items() if _is_json(value)}
    own = {"state": {**_mapping(agent.get("state")), **kept}} if kept else {}
    return replace(
        made,
        state={**made.state, AGENTS: {**agents, "": {**agent, **own}}},
        left=tuple(name for name in options.carried if name not in kept),
    )


def _native_messages(transcript: Transcript, first: int) -> list[dict[str, Any]]:
    """Return the messages; results and what the user says after them are one message.

    Some models want turns in alternation. The names of documents are numbered: they must differ
    within a conversation.
    """
    made: list[dict[str, Any]] = []
    numbers = count(1)
    for message in transcript:
        role = "assistant" if message.role == "assistant" else "user"
        content = [_native_block(part, f"document {first}-{next(numbers)}") for part in message.parts]
        if made and made[-1]["role"] == role == "user":
            made[-1]["content"] += content
        else:
            made.append({"role": role, "content": content})
    return made


def _native_block(part: MessagePart, name: str, kinds: Sequence[str] = tuple(_MEDIA)) -> dict[str, Any]:
    """Return a block of content; media that Strands has no block for become a note.

    `name` is for a document. `kinds` are the blocks of media that may stand here.
    """
    match part:
        case TextPart():
            return {"text": part.content}
        case ToolCallPart():
            return {"toolUse": {"toolUseId": part.id, "name": part.name, "input": dict(part.arguments or {})}}
        case ToolResponsePart():
            content = [
                _native_block(item, f"{name}-{number}", _IN_RESULTS) for number, item in enumerate(part.content, 1)
            ]
            status = "error" if part.is_error else "success"
            return {"toolResult": {"toolUseId": part.id, "status": status, "content": content}}
        case ReasoningPart():
            # Some of its models read the signature without checking whether there is one.
            return {"reasoningContent": {"reasoningText": {"text": part.content, "signature": None}}}
        case BlobPart() | UriPart():
            kind, format_ = _FORMATS.get((part.mime_type or "").partition(";")[0], ("", ""))
            source = _native_source(part)
            if kind in kinds and source is not None:
                named = {"name": name} if kind == "document" else {}
                return {kind: {"format": format_, **named, "source": source}}
            description = part.mime_type or "data" if isinstance(part, BlobPart) else f"link: {part.uri:.200}"
            return {"text": f"[not carried over: {description}]"}
        case _:
            return {"text": f"[{part.kind}]"}


def _native_source(part: BlobPart | UriPart) -> dict[str, Any] | None:
    if isinstance(part, BlobPart):
        return None if part.data is None else {"bytes": part.data}
    return {"location": {"type": "s3", "uri": part.uri}} if part.uri.startswith("s3://") else None


def _state_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of the agent's own state by their names, and what else is not in the transcript."""
    agents = {str(path): dict(_mapping(agent)) for path, agent in _mapping(state.get(AGENTS)).items()}
    own = _mapping(agents.get("", {}).pop("state", None))
    rest = {path: agent for path, agent in agents.items() if agent}
    is_team = MESSAGES not in state  # else the conversations of agents that are tools are left out of the transcript
    others = {
        name: value
        for name, value in state.items()
        if name not in (MESSAGES, AGENTS) and not (is_team and str(name).startswith(f"{MESSAGES}:"))
    }
    return {**others, **({AGENTS: rest} if rest else {}), **own}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _messages(messages: Any, author: str | None = None) -> Iterator[TranscriptMessage]:
    for message in messages if isinstance(messages, list | tuple) else ():
        if not isinstance(message, Mapping):
            continue
        content, role = message.get("content"), message.get("role")
        if not isinstance(content, list) or role not in ("user", "assistant"):
            yield message_of_chat(message)
            continue
        parts = [_part(block) for block in content if isinstance(block, Mapping)]
        for part in parts:
            if isinstance(part, ToolResponsePart):  # results of calls that were made at once: a message for each
                yield TranscriptMessage(role="tool", parts=(part,))
        rest = tuple(part for part in parts if not isinstance(part, ToolResponsePart))
        id_, usage = message.get("tracking_id"), _mapping(message.get("metadata")).get("usage")
        if rest:
            yield TranscriptMessage(
                role=role,
                parts=rest,
                id=id_ if isinstance(id_, str) else None,
                author=author if role == "assistant" else None,
                usage=usage if isinstance(usage, Mapping) else None,
            )


def _part(block: Mapping[str, Any]) -> MessagePart:
    match block:
        case {"text": str() as text}:
            return TextPart(content=text)
        case {"toolUse": Mapping() as use}:
            given = use.get("input")
            return ToolCallPart(
                id=str(use.get("toolUseId")),
                name=str(use.get("name")),
                arguments=dict(given) if isinstance(given, Mapping) else None,
                raw_arguments=None if isinstance(given, Mapping) else as_text(given),
            )
        case {"toolResult": Mapping() as result}:
            content = result.get("content")
            blocks = content if isinstance(content, list) else ()
            return ToolResponsePart(
                id=str(result.get("toolUseId")),
                content=tuple(_part(item) for item in blocks if isinstance(item, Mapping)),
                is_error=result.get("status") == "error",
            )
        case {"json": value}:
            return TextPart(content=as_text(value))
        case {"reasoningContent": {"reasoningText": Mapping() as reasoning}}:
            return ReasoningPart(content=str(reasoning.get("text", "")), signature=reasoning.get("signature"))
        case {"reasoningContent": {"redactedContent": bytes() as hidden}}:
            return ReasoningPart(encrypted=base64.b64encode(hidden).decode())
        case {"citationsContent": {"content": list() as cited}}:
            return TextPart(content="".join(str(item.get("text", "")) for item in cited if isinstance(item, Mapping)))
    return _media_part(block)


def _media_part(block: Mapping[str, Any]) -> MessagePart:
    kind = next(iter(block), "part")
    media = block.get(kind)
    if kind in _MEDIA and isinstance(media, Mapping):
        format_ = str(media.get("format", "octet-stream"))
        known = _DOCUMENTS.get(format_) if kind == "document" else None
        mime_type = known or f"{_MEDIA[kind]}/{format_}"
        match media.get("source"):
            case {"bytes": bytes() as data}:
                return BlobPart(mime_type=mime_type, data=data)
            case {"location": {"uri": str() as uri}}:
                return UriPart(uri=uri, mime_type=mime_type)
    return GenericPart(type=str(kind), values=dict(block))
