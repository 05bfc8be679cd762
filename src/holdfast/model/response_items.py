"""Items of the Responses API (Open Responses) to neutral messages, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.model.chat_messages import content_parts, data_uri, message_of_chat
from holdfast.model.conversation import (
    BlobPart,
    GenericPart,
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.transcript import parse_object

# Calls that the provider carries out itself: their results are there.
HOSTED = (
    *("web_search_call", "file_search_call", "computer_call", "code_interpreter_call", "image_generation_call"),
    *("local_shell_call", "mcp_call", "mcp_list_tools", "mcp_approval_request"),
)


def is_item(value: Any) -> bool:
    """Return whether a value is an item that is no chat message."""
    return (
        isinstance(value, Mapping)
        and "role" not in value
        and isinstance(kind := value.get("type"), str)
        and (kind in ("function_call", "function_call_output", "reasoning", "item_reference") or kind in HOSTED)
    )


def messages_of_items(items: Any) -> Iterator[TranscriptMessage]:
    """Yield the items as messages; each item is one."""
    for item in items if isinstance(items, list | tuple) else ():
        if not isinstance(item, Mapping):
            continue
        if "role" in item:
            yield message_of_chat(item)
        else:
            part = _part(item)
            yield TranscriptMessage(role="tool" if isinstance(part, ToolResponsePart) else "assistant", parts=(part,))


def _part(item: Mapping[str, Any]) -> MessagePart:
    match item.get("type"):
        case "function_call":
            written = item.get("arguments")
            arguments = parse_object(written)
            return ToolCallPart(
                id=str(item.get("call_id")),
                name=str(item.get("name")),
                arguments=arguments,
                raw_arguments=str(written) if arguments is None else None,
            )
        case "function_call_output":
            return ToolResponsePart(id=str(item.get("call_id")), content=tuple(content_parts(item.get("output"))))
        case "reasoning":
            summary = item.get("summary")
            texts = [str(one.get("text", "")) for one in summary or () if isinstance(one, Mapping)]
            encrypted = item.get("encrypted_content")
            return ReasoningPart(content="\n".join(texts), provider="openai", encrypted=encrypted)
        case str() as kind if kind in HOSTED:
            return ToolCallPart(id=str(item.get("id")), name=kind, arguments={}, hosted=True)
        case other:
            return GenericPart(type=str(other), values={key: one for key, one in item.items() if key != "type"})


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
        case BlobPart(data=bytes()):
            if part.mime_type.startswith("image/"):
                return {"type": "input_image", "image_url": data_uri(part), "detail": "auto"}
            return {"type": "input_file", "file_data": data_uri(part), "filename": "file"}
        case UriPart():
            is_image = part.mime_type is None or part.mime_type.startswith("image/")
            link = {"type": "input_image", "image_url": part.uri, "detail": "auto"}
            return link if is_image else {"type": "input_file", "file_url": part.uri}
        case TextPart():
            return {"type": "input_text", "text": part.content}
        case _:
            return {"type": "input_text", "text": f"[{part.kind}]"}
