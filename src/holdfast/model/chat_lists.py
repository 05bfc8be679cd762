"""Neutral messages as lists of chat messages, in the shapes of OpenAI and Anthropic."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from holdfast.model.transcript_facets import is_image_link
from holdfast.model.transcript_order import describe_media


def chat_of_messages(messages: Iterable[TranscriptMessage]) -> list[dict[str, Any]]:
    """Return messages that fit this target in OpenAI's chat shape."""
    return [chat_message for message in messages for chat_message in _chat_messages(message)]


def _chat_messages(message: TranscriptMessage) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        for part in message.tool_responses:
            yield {"role": "tool", "tool_call_id": part.id, "content": text_of(part.content)}
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
        case BlobPart() if (image := image_of(part)) is not None:
            return {"type": "image_url", "image_url": {"url": data_uri(image)}}
        case UriPart() if is_web_link(part):
            return {"type": "image_url", "image_url": {"url": part.uri}}
        case BlobPart() | UriPart():
            return {"type": "text", "text": describe_media(part).content}
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


def append_anthropic(before: Sequence[Any], made: Sequence[dict[str, Any]]) -> list[Any]:
    """Return a list with messages appended; what the user says after the user is in the same message.

    All results of a turn must be in the message after their calls.
    """
    last = before[-1] if before else None
    if not (isinstance(last, Mapping) and made and last.get("role") == made[0]["role"] == "user"):
        return [*before, *made]
    content = last.get("content")
    blocks = (
        list(content) if isinstance(content, list | tuple) else [{"type": "text", "text": content}] if content else []
    )
    return [*before[:-1], {**last, "content": [*blocks, *made[0]["content"]]}, *made[1:]]


def _block(part: MessagePart) -> dict[str, Any]:
    match part:
        case ToolCallPart():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": dict(part.arguments or {})}
        case ToolResponsePart():
            content = [_block(item) for item in part.content if not isinstance(item, TextPart) or item.content]
            block = {"type": "tool_result", "tool_use_id": part.id, "content": content}
            return {**block, "is_error": True} if part.is_error else block
        case BlobPart() if (image := image_of(part)) is not None:
            return {"type": "image", "source": _data_source(image)}
        case BlobPart(mime_type="application/pdf", data=bytes() as data) if data:
            return {"type": "document", "source": _data_source(part)}
        case BlobPart() if (text := _plain_text_of(part)) is not None:
            return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}
        case UriPart() if is_web_link(part) and (is_image_link(part) or part.mime_type in _LINKED_DOCUMENTS):
            kind = "image" if is_image_link(part) else "document"
            return {"type": kind, "source": {"type": "url", "url": part.uri}}
        case BlobPart() | UriPart():
            return {"type": "text", "text": describe_media(part).content}
        case TextPart():
            return {"type": "text", "text": part.content}
        case _:
            return {"type": "text", "text": f"[{part.kind}]"}


def _data_source(part: BlobPart) -> dict[str, Any]:
    data = base64.b64encode(part.data or b"").decode()
    return {"type": "base64", "media_type": part.mime_type, "data": data}


def _plain_text_of(part: BlobPart) -> str | None:
    if not part.mime_type.startswith("text/") or not part.data:
        return None
    try:
        return part.data.decode("utf-8")
    except UnicodeDecodeError:
        return None


# -- media that the providers take -------------------------------------------------------------------------------------

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_LINKED_DOCUMENTS = ("application/pdf", "application/octet-stream")  # the latter if the type is not known


def image_of(part: BlobPart) -> BlobPart | None:
    """Return an image under the name of its type that all providers take; None if some refuse it."""
    mime_type = "image/jpeg" if part.mime_type == "image/jpg" else part.mime_type
    return replace(part, mime_type=mime_type) if part.data and mime_type in _IMAGES else None


def is_web_link(part: UriPart) -> bool:
    """Return whether a provider can follow a link."""
    return part.uri.startswith(("https://", "http://"))
