"""Items of the Responses API (Open Responses) to neutral messages, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.model.chat_lists import image_of, is_web_link
from holdfast.model.chat_messages import call_of, content_parts, data_uri, message_of_chat, reasoning_of
from holdfast.model.conversation import (
    BlobPart,
    GenericPart,
    MessagePart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.transcript_facets import is_image_link
from holdfast.model.transcript_order import describe_media

# Calls that the provider carries out itself, or in a form of its own: their results are there.
HOSTED = (
    *("web_search_call", "file_search_call", "computer_call", "code_interpreter_call", "image_generation_call"),
    *("local_shell_call", "mcp_call", "mcp_list_tools", "mcp_approval_request", "tool_search_call"),
    *("shell_call", "apply_patch_call", "program"),
)
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ITEMS = frozenset((*_CALLS, *_OUTPUTS, *HOSTED, "reasoning", "item_reference", "compaction", "mcp_approval_response"))
_FORM = ("type", "id", "call_id", "status")
_ENDINGS = {"application/pdf": ".pdf", "application/json": ".json", "text/plain": ".txt", "text/csv": ".csv"}


def is_item(value: Any) -> bool:
    """Return whether a value is an item that is no chat message."""
    return (
        isinstance(value, Mapping)
        and "role" not in value
        and isinstance(kind := value.get("type"), str)
        and (kind in _ITEMS or kind.endswith("_call_output"))
    )


def messages_of_items(items: Any) -> Iterator[TranscriptMessage]:
    """Yield the items as messages; each item is one, and so is a result that an item has beside its call."""
    for item in items if isinstance(items, list | tuple) else ():
        if not isinstance(item, Mapping):
            continue
        if "role" in item:
            yield message_of_chat(item)
        elif item.get("type") == "mcp_call" and (item.get("output") is not None or item.get("error")):
            yield from _messages_of_mcp(item)
        else:
            part = _part(item)
            yield TranscriptMessage(role="tool" if isinstance(part, ToolResponsePart) else "assistant", parts=(part,))


def _messages_of_mcp(item: Mapping[str, Any]) -> Iterator[TranscriptMessage]:
    """Yield a call that the provider has carried out at an MCP server, and its result."""
    id_, name = str(item.get("id")), str(item.get("name"))
    yield TranscriptMessage(role="assistant", parts=(call_of(id_, name, item.get("arguments")),))
    error = item.get("error")
    result = ToolResponsePart(
        id=id_, name=name, content=tuple(content_parts(error or item.get("output"))), is_error=bool(error)
    )
    yield TranscriptMessage(role="tool", parts=(result,))


def _part(item: Mapping[str, Any]) -> MessagePart:
    match item.get("type"):
        case "function_call":
            return call_of(item.get("call_id"), item.get("name"), item.get("arguments"))
        case "custom_tool_call":
            written = str(item.get("input") or "")
            return ToolCallPart(
                id=str(item.get("call_id")), name=str(item.get("name")), arguments=None, raw_arguments=written
            )
        case str() as kind if kind in _OUTPUTS:
            return ToolResponsePart(id=str(item.get("call_id")), content=tuple(content_parts(item.get("output"))))
        case "reasoning":
            return replace(reasoning_of(item), provider="openai")
        case str() as kind if kind in HOSTED:
            arguments = {str(name): value for name, value in item.items() if name not in _FORM}
            return ToolCallPart(id=str(item.get("id")), name=kind, arguments=arguments, hosted=True)
        case other:
            return GenericPart(type=str(other), values={key: value for key, value in item.items() if key != "type"})


def items_of_messages(messages: Iterable[TranscriptMessage]) -> list[dict[str, Any]]:
    """Return messages that fit this target as items."""
    return [item for message in messages for item in _items(message)]


def _items(message: TranscriptMessage) -> Iterator[dict[str, Any]]:
    if message.role == "user":
        texts = [part for part in message.parts if isinstance(part, TextPart)]
        is_text = len(texts) == len(message.parts) == 1
        yield {"role": "user", "content": texts[0].content if is_text else [*map(_input, message.parts)]}
        return
    for part in message.parts:
        match part:
            case ToolCallPart():
                arguments = json.dumps(part.arguments, ensure_ascii=False, default=str)
                yield {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments}
            case ToolResponsePart():
                yield {"type": "function_call_output", "call_id": part.id, "output": _output(part.content)}
            case TextPart():
                # The short form of a message: the long one needs an id of the provider's.
                yield {"role": "assistant", "content": part.content}
            case _:
                # Only the user's messages can have images.
                yield {"role": "user", "content": [_input(part)]}


def _output(parts: Sequence[MessagePart]) -> Any:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].content
    return [*map(_input, parts)]


def _input(part: MessagePart) -> dict[str, Any]:
    match part:
        case BlobPart() if (image := image_of(part)) is not None:
            return {"type": "input_image", "image_url": data_uri(image), "detail": "auto"}
        case BlobPart(data=bytes() as data) if data and part.mime_type.startswith(("application/", "text/")):
            name = f"file{_ENDINGS.get(part.mime_type, '')}"
            return {"type": "input_file", "file_data": data_uri(part), "filename": name}
        case UriPart() if is_web_link(part):
            link = {"type": "input_image", "image_url": part.uri, "detail": "auto"}
            return link if is_image_link(part) else {"type": "input_file", "file_url": part.uri}
        case BlobPart() | UriPart():
            return {"type": "input_text", "text": describe_media(part).content}
        case TextPart():
            return {"type": "input_text", "text": part.content}
        case _:
            return {"type": "input_text", "text": f"[{part.kind}]"}
