"""Neutral messages as lists of chat messages, in the shapes of OpenAI and Anthropic."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.model.chat_messages import data_uri
from holdfast.model.conversation import (
    BlobPart,
    MessagePart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    TranscriptMessage,
    UriPart,
)


def chat_of_messages(messages: Iterable[TranscriptMessage]) -> list[dict[str, Any]]:
    """Return messages that fit this target in OpenAI's chat shape."""
    return [one for message in messages for one in _chat_messages(message)]


def _chat_messages(message: TranscriptMessage) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        for part in message.tool_responses:
            yield {"role": "tool", "tool_call_id": part.id, "name": part.name, "content": text_of(part.content)}
        return
    media = [part for part in message.parts if not isinstance(part, ToolCallPart)]
    is_text = all(isinstance(part, TextPart) for part in media)
    content: Any = text_of(media) if is_text else [*map(_chat_block, media)]
    made: dict[str, Any] = {"role": message.role, "content": content or None}
    if message.tool_calls:
        made["tool_calls"] = [chat_call(call) for call in message.tool_calls]
    if message.author is not None:
        made["name"] = message.author
    yield made


def chat_call(call: ToolCallPart) -> dict[str, Any]:
    written = json.dumps(call.arguments, ensure_ascii=False, default=str)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": written}}


def text_of(parts: Sequence[MessagePart]) -> str:
    return "\n\n".join(part.content for part in parts if isinstance(part, TextPart))


def _chat_block(part: MessagePart) -> dict[str, Any]:
    match part:
        case BlobPart():
            return {"type": "image_url", "image_url": {"url": data_uri(part)}}
        case UriPart():
            return {"type": "image_url", "image_url": {"url": part.uri}}
        case TextPart():
            return {"type": "text", "text": part.content}
        case _:
            return {"type": "text", "text": f"[{part.kind}]"}


# -- Anthropic ---------------------------------------------------------------------------------------------------------


def anthropic_of_messages(messages: Iterable[TranscriptMessage]) -> list[dict[str, Any]]:
    """Return messages that fit this target in Anthropic's shape.

    Results are the user's, and what the user says right after them is in the same message.
    """
    made: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = [_block(part) for part in message.parts]
        if made and made[-1]["role"] == role == "user":
            made[-1]["content"] += blocks
        else:
            made.append({"role": role, "content": blocks})
    return made


def _block(part: MessagePart) -> dict[str, Any]:
    match part:
        case ToolCallPart():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": dict(part.arguments or {})}
        case ToolResponsePart():
            content = [_block(one) for one in part.content if not isinstance(one, TextPart) or one.content]
            block = {"type": "tool_result", "tool_use_id": part.id, "content": content}
            return {**block, "is_error": True} if part.is_error else block
        case BlobPart():
            data = base64.b64encode(part.data or b"").decode()
            return _with_source(part.mime_type, {"type": "base64", "media_type": part.mime_type, "data": data})
        case UriPart():
            return _with_source(part.mime_type, {"type": "url", "url": part.uri})
        case TextPart():
            return {"type": "text", "text": part.content}
        case _:
            return {"type": "text", "text": f"[{part.kind}]"}


def _with_source(mime_type: str | None, source: Mapping[str, Any]) -> dict[str, Any]:
    is_image = mime_type is None or mime_type.startswith("image/")
    return {"type": "image" if is_image else "document", "source": dict(source)}
