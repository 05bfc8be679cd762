"""Chat messages as dicts, in the shapes of OpenAI, Anthropic and LangChain, to neutral messages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.model import transcript
from holdfast.model.conversation import (
    BlobPart,
    FilePart,
    GenericPart,
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    TranscriptMessage,
    UriPart,
    text_parts,
)

_ROLES = {
    "human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "model": "assistant",
    "developer": "system", "function": "tool",
}  # fmt: skip
_OWN = frozenset(
    (
        "role",
        "type",
        "content",
        "tool_calls",
        "tool_call_id",
        "name",
        "id",
        "data",
        "status",
        "is_error",
        "reasoning_content",
    )
)


def messages_of_chat(messages: Iterable[Any]) -> list[TranscriptMessage]:
    """Return chat messages in neutral form. A text stands for a message of the user."""
    return [message_of_chat(one if isinstance(one, Mapping) else {"role": "user", "content": one}) for one in messages]


def message_of_chat(message: Mapping[str, Any]) -> TranscriptMessage:
    """Return one chat message in neutral form."""
    body = message["data"] if isinstance(message.get("data"), Mapping) else message
    given = str(message.get("role") or message.get("type") or body.get("role") or "user")
    role = _ROLES.get(given, given)
    parts: list[MessagePart] = []
    if role == "tool":
        content = tuple(content_parts(body.get("content")))
        id_ = str(body.get("tool_call_id") or body.get("id") or "")
        is_error = body.get("status") == "error" or bool(body.get("is_error"))
        parts.append(ToolResponsePart(id=id_, name=str(body.get("name") or ""), content=content, is_error=is_error))
    else:
        blocks = list(content_parts(body.get("content")))
        in_blocks = {part.id for part in blocks if isinstance(part, ToolCallPart)}
        parts = [*_reasoning(body), *blocks, *(one for one in _calls(message) if one.id not in in_blocks)]
        if any(isinstance(part, ToolResponsePart) for part in parts):
            role = "tool"  # Anthropic answers calls in the user's name
    name = body.get("name")
    id_given = body.get("id")
    return TranscriptMessage(
        role=role if role in ("system", "user", "assistant", "tool") else "user",
        parts=tuple(parts),
        id=id_given if isinstance(id_given, str) else None,
        author=name if isinstance(name, str) and role != "tool" else None,
        ext={key: one for key, value in body.items() if key not in _OWN and (one := _without_reasoning(value))},
    )


def _reasoning(body: Mapping[str, Any]) -> Iterator[MessagePart]:
    """Yield the reasoning that open models put beside the content; LangChain keeps it one level deeper."""
    kept = body.get("additional_kwargs")
    given = body.get("reasoning_content") or (kept.get("reasoning_content") if isinstance(kept, Mapping) else None)
    if isinstance(given, str) and given:
        yield ReasoningPart(content=given)


def content_parts(content: Any) -> Iterator[MessagePart]:
    """Yield the parts of a message's content: a text, or a list of blocks."""
    if isinstance(content, str):
        yield from text_parts(content)
    elif isinstance(content, Mapping):
        yield _part(content)
    elif isinstance(content, list | tuple):
        for block in content:
            if isinstance(block, str):
                yield from text_parts(block)
            elif isinstance(block, Mapping):
                yield _part(block)
            else:
                yield TextPart(content=str(block))
    elif content is not None:
        yield TextPart(content=str(content))


def _part(block: Mapping[str, Any]) -> MessagePart:
    match block.get("type"):
        case "text" | "input_text" | "output_text":
            return TextPart(content=str(block.get("text", "")))
        case "tool_use" | "tool_call":
            arguments = transcript.parse_object(block.get("input", block.get("args", {})))
            return ToolCallPart(id=str(block.get("id")), name=str(block.get("name")), arguments=arguments)
        case "tool_result":
            return ToolResponsePart(
                id=str(block.get("tool_use_id")),
                content=tuple(content_parts(block.get("content"))),
                is_error=bool(block.get("is_error")),
            )
        case "thinking" | "reasoning":
            text = block.get("thinking") or block.get("reasoning") or block.get("text") or ""
            return ReasoningPart(content=str(text), signature=block.get("signature"))
        case "image_url" | "input_image" if isinstance(block.get("image_url"), Mapping | str):
            given = block["image_url"]
            return uri_or_blob(str(given.get("url", "")) if isinstance(given, Mapping) else given)
        case "input_file" if isinstance(block.get("file_data"), str):
            return uri_or_blob(block["file_data"])
        case "input_file" if isinstance(block.get("file_url"), str):
            return UriPart(uri=block["file_url"], mime_type="application/octet-stream")
        case "input_file" | "input_image" if isinstance(block.get("file_id"), str):
            return FilePart(file_id=block["file_id"], provider="openai")
        case "image" | "document" if isinstance(block.get("source"), Mapping):
            source = block["source"]
            if source.get("type") == "url":
                is_document = block.get("type") == "document"
                return UriPart(uri=str(source.get("url", "")), mime_type="application/pdf" if is_document else None)
            return blob_of(str(source.get("media_type", "")), source.get("data"))
        case "image" | "file" | "audio" | "video" as kind if isinstance(block.get("base64", block.get("data")), str):
            default = "image/png" if kind == "image" else "application/octet-stream"
            return blob_of(str(block.get("mime_type") or default), block.get("base64", block.get("data")))
        case "image" | "file" | "audio" | "video" as kind if isinstance(block.get("url"), str):
            mime_type = block.get("mime_type") or (None if kind == "image" else "application/octet-stream")
            return UriPart(uri=block["url"], mime_type=mime_type if isinstance(mime_type, str) else None)
        case _ if isinstance(block.get("text"), str):
            return TextPart(content=block["text"])
        case other:
            return GenericPart(type=str(other), values={key: one for key, one in block.items() if key != "type"})


def uri_or_blob(uri: str) -> MessagePart:
    """Return a link, or the data of a `data:` link."""
    head, comma, data = uri.partition(",")
    if head.startswith("data:") and comma and head.endswith(";base64"):
        return blob_of(head[len("data:") : -len(";base64")], data)
    return UriPart(uri=uri)


def _without_reasoning(value: Any) -> Any:
    """Return a field as it is, without the reasoning, which is a part; None if it is empty."""
    if isinstance(value, Mapping):
        return {name: one for name, one in value.items() if name != "reasoning_content"} or None
    return None if value in (None, [], "") else value


def data_uri(part: BlobPart) -> str:
    """Return data as a `data:` link."""
    return f"data:{part.mime_type};base64,{base64.b64encode(part.data or b'').decode()}"


def blob_of(mime_type: str, data: Any) -> MessagePart:
    """Return data in base64 as a part; a part that says so if it is none."""
    try:
        return BlobPart(mime_type=mime_type, data=base64.b64decode(data, validate=True))
    except (binascii.Error, TypeError, ValueError):
        return GenericPart(type="blob", values={"mime_type": mime_type, "data": data})


def _calls(message: Mapping[str, Any]) -> Iterator[ToolCallPart]:
    body = message["data"] if isinstance(message.get("data"), Mapping) else message
    given = body.get("tool_calls")
    listed = given if isinstance(given, list | tuple) else ()
    raw = {str(one.get("id")): one for one in listed if isinstance(one, Mapping)}
    for call in transcript.list_calls({**message, "role": "assistant"} if "role" in message else message):
        function = raw.get(call.id, {}).get("function")
        written = function.get("arguments") if isinstance(function, Mapping) else None
        yield ToolCallPart(
            id=call.id,
            name=call.name,
            arguments=call.arguments,
            raw_arguments=written if call.arguments is None and isinstance(written, str) else None,
        )
