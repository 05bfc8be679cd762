"""Chat messages as dicts, in the shapes of OpenAI, Anthropic and LangChain, to neutral messages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.model import transcript
from holdfast.model.conversation import (
    ROLES,
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
from holdfast.model.transcript_repair import as_text

_ROLES = {
    "human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "model": "assistant",
    "developer": "system", "function": "tool", "message": "user",
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
        "refusal",
        "function_call",
        "invalid_tool_calls",
    )
)
# Calls that the model's provider carries out, as blocks of a message.
_HOSTED = ("server_tool_use", "mcp_tool_use", "server_tool_call", "web_search_call", "code_interpreter_call")


def messages_of_chat(messages: Iterable[Any]) -> list[TranscriptMessage]:
    """Return chat messages in neutral form. A text stands for a message of the user."""
    return [
        message_of_chat(message if isinstance(message, Mapping) else {"role": "user", "content": message})
        for message in messages
    ]


def message_of_chat(message: Mapping[str, Any]) -> TranscriptMessage:
    """Return one chat message in neutral form."""
    body = message["data"] if isinstance(message.get("data"), Mapping) else message
    named = message.get("role") or message.get("type") or body.get("role")
    given = str(named or "user")
    role = _ROLES.get(given, given)
    parts: list[MessagePart] = []
    if role == "tool":
        content = tuple(content_parts(body.get("content")))
        legacy = _legacy_id(body) if given == "function" else None
        id_ = str(body.get("tool_call_id") or legacy or body.get("id") or "")
        is_error = body.get("status") == "error" or bool(body.get("is_error"))
        parts.append(ToolResponsePart(id=id_, name=str(body.get("name") or ""), content=content, is_error=is_error))
    else:
        blocks = list(content_parts(body.get("content", body.get("parts", body.get("text")))))
        in_blocks = {part.id for part in blocks if isinstance(part, ToolCallPart)}
        spoken = () if role != "assistant" else (*text_parts(body.get("refusal")), *_spoken(body.get("audio")))
        parts = [*_reasoning(body), *blocks, *spoken, *(call for call in _calls(message) if call.id not in in_blocks)]
        if any(isinstance(part, ToolResponsePart) for part in parts):
            role = "tool"  # Anthropic answers calls in the user's name
        elif (named is None or role not in ROLES) and any(isinstance(part, ToolCallPart) for part in parts):
            role = "assistant"  # under a name of its own
    own = _OWN if "content" in body else _OWN | {"parts" if "parts" in body else "text"}
    is_known = role in ROLES
    is_own = named is not None and _ROLES.get(given, given) not in ROLES
    name = body.get("name") or (given if is_own else None)  # of a role of its own, such as a critic's
    id_given = body.get("id")
    return TranscriptMessage(
        role=role if is_known else "user",
        parts=tuple(parts),
        id=id_given if isinstance(id_given, str) else None,
        author=name if isinstance(name, str) and role != "tool" else None,
        ext={
            key: rest
            for key, value in body.items()
            if key not in own and not _is_reasoning(key) and (rest := _without_reasoning(value))
        },
    )


def _spoken(audio: Any) -> Iterator[MessagePart]:
    """Yield what OpenAI's models said aloud: the words if they are there, else where the sound is stored."""
    words = _text_of(audio, "transcript")
    id_ = _text_of(audio, "id")
    if words is not None:
        yield TextPart(content=words)
    elif id_ is not None:
        yield FilePart(file_id=id_, provider="openai")


def _reasoning(body: Mapping[str, Any]) -> Iterator[MessagePart]:
    """Yield the reasoning that models put beside the content; LangChain keeps it one level deeper."""
    kept = body.get("additional_kwargs")
    for fields in (body, kept if isinstance(kept, Mapping) else {}):
        text = fields.get("reasoning_content") or fields.get("reasoning")
        if isinstance(text, str) and text:
            yield ReasoningPart(content=text)
        elif isinstance(text, Mapping):  # OpenAI's, as LangChain keeps it
            yield reasoning_of(text)
        details = fields.get("reasoning_details")
        for detail in details if isinstance(details, list | tuple) else ():
            secret = _text_of(detail, "data", "signature")
            if secret is not None:
                yield ReasoningPart(encrypted=secret)
        for name, value in fields.items():
            if value and "signature" in str(name):  # of Gemini's calls
                yield ReasoningPart(signature=as_text(value))


def reasoning_of(block: Mapping[str, Any]) -> ReasoningPart:
    """Return a block of reasoning, in the shape of any provider or of LangChain."""
    inner = block.get("reasoning_content")  # Bedrock's
    fields = inner if isinstance(inner, Mapping) else block
    texts = [fields[name] for name in ("thinking", "reasoning", "text") if isinstance(fields.get(name), str)][:1]
    for name in ("summary", "content"):
        listed = fields.get(name)
        listed = [{"text": listed}] if isinstance(listed, str) else listed
        for item in listed if isinstance(listed, list | tuple) else ():
            found = _text_of(item, "text")
            texts += [] if found is None else [found]
    extras = fields.get("extras")
    more = extras if isinstance(extras, Mapping) else {}
    return ReasoningPart(
        content="\n".join(text for text in texts if text),
        signature=_text_of(fields, "signature") or _text_of(more, "signature"),
        encrypted=_text_of(fields, "encrypted_content") or _text_of(more, "encrypted_content"),
    )


def _text_of(fields: Any, *names: str) -> str | None:
    """Return the first of these fields that is a text."""
    if not isinstance(fields, Mapping):
        return None
    return next((text for name in names if isinstance(text := fields.get(name), str) and text), None)


def _legacy_id(call: Mapping[str, Any]) -> str:
    """Return an id for a call of OpenAI's old form, which has a name only."""
    return f"function {call.get('name')}"


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
        case "thinking" | "reasoning" | "reasoning_content":
            return reasoning_of(block)
        case "redacted_thinking" if isinstance(block.get("data"), str):
            return ReasoningPart(encrypted=block["data"])
        case "non_standard" if isinstance(block.get("value"), Mapping) and "value" not in block["value"]:
            return _part(block["value"])
        case "refusal" if isinstance(block.get("refusal"), str):
            return TextPart(content=block["refusal"])
        case str() as kind if kind in _HOSTED:
            arguments = transcript.parse_object(block.get("input", block.get("args", {})))
            name = str(block.get("name") or kind)
            return ToolCallPart(id=str(block.get("id")), name=name, arguments=arguments or {}, hosted=True)
        case "input_audio" if (audio := block.get("input_audio")) and _text_of(audio, "data"):
            return blob_of(f"audio/{audio.get('format') or 'wav'}", audio["data"])
        case "file" if (data := _text_of(block.get("file"), "file_data")) is not None:
            return uri_or_blob(data)
        case "file" if (file_id := _text_of(block.get("file"), "file_id")) is not None:
            return FilePart(file_id=file_id, provider="openai")
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
            if source.get("type") == "file" and isinstance(source.get("file_id"), str):
                return FilePart(file_id=source["file_id"], provider="anthropic")
            if source.get("type") == "text" and isinstance(source.get("data"), str):
                data = source["data"].encode("utf-8", "surrogatepass")
                return BlobPart(mime_type=str(source.get("media_type") or "text/plain"), data=data)
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
            return GenericPart(type=str(other), values={key: value for key, value in block.items() if key != "type"})


def uri_or_blob(uri: str) -> MessagePart:
    """Return a link, or the data of a `data:` link."""
    head, comma, data = uri.partition(",")
    if head.startswith("data:") and comma and head.endswith(";base64"):
        return blob_of(head[len("data:") : -len(";base64")], data)
    return UriPart(uri=uri)


def _without_reasoning(value: Any) -> Any:
    """Return a field as it is, without the reasoning, which is a part; None if it is empty."""
    if isinstance(value, Mapping):
        return {name: item for name, item in value.items() if not _is_reasoning(name)} or None
    return None if value is None or value in ([], "") else value


def _is_reasoning(name: Any) -> bool:
    return name in ("reasoning_content", "reasoning", "reasoning_details") or "signature" in str(name)


def data_uri(part: BlobPart) -> str:
    """Return data as a `data:` link."""
    return f"data:{part.mime_type};base64,{base64.b64encode(part.data or b'').decode()}"


def blob_of(mime_type: str, data: Any) -> MessagePart:
    """Return data in base64 as a part; a part that says so if it is none."""
    try:
        return BlobPart(mime_type=mime_type, data=base64.b64decode(data, validate=True))
    except (binascii.Error, TypeError, ValueError):
        return GenericPart(type="blob", values={"mime_type": mime_type, "data": data})


def call_of(id_: Any, name: Any, written: Any, *, hosted: bool = False) -> ToolCallPart:
    """Return a call whose arguments are as the model wrote them: an object, JSON in a string, or anything."""
    arguments = transcript.parse_object(written)
    return ToolCallPart(
        id=str(id_),
        name=str(name),
        arguments=arguments,
        raw_arguments=str(written) if arguments is None else None,
        hosted=hosted,
    )


def _calls(message: Mapping[str, Any]) -> Iterator[ToolCallPart]:
    body = message["data"] if isinstance(message.get("data"), Mapping) else message
    given = body.get("tool_calls")
    listed = given if isinstance(given, list | tuple) else ()
    raw = {str(item.get("id")): item for item in listed if isinstance(item, Mapping)}
    for call in transcript.list_calls({**message, "role": "assistant"} if "role" in message else message):
        known = raw.get(call.id, {})
        written = _text_of(known.get("function"), "arguments") or _text_of(known.get("custom"), "input")
        yield ToolCallPart(
            id=call.id,
            name=call.name,
            arguments=call.arguments,
            raw_arguments=written if call.arguments is None else None,
        )
    invalid = body.get("invalid_tool_calls")
    for item in invalid if isinstance(invalid, list | tuple) else ():  # LangChain's, of arguments that are no JSON
        if isinstance(item, Mapping):
            written = _text_of(item, "args")
            yield ToolCallPart(
                id=str(item.get("id")), name=str(item.get("name")), arguments=None, raw_arguments=written
            )
    legacy = body.get("function_call")
    if isinstance(legacy, Mapping):
        arguments = transcript.parse_object(legacy.get("arguments"))
        written = _text_of(legacy, "arguments")
        yield ToolCallPart(
            id=_legacy_id(legacy),
            name=str(legacy.get("name")),
            arguments=arguments,
            raw_arguments=written if arguments is None else None,
        )
