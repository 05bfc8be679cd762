"""Values of Haystack as plain data, and back: documents, messages, files, answers.

An object becomes a dict with the name of its class, which is one of `CLASSES`. So no name in a
store is ever imported. Other objects stay as they are: the store keeps them, or refuses them.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import pathlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from haystack.dataclasses import (
    ByteStream,
    ChatMessage,
    Document,
    ExtractedAnswer,
    FileContent,
    GeneratedAnswer,
    ImageContent,
    ReasoningContent,
    SparseEmbedding,
    TextContent,
    ToolCall,
    ToolCallResult,
)

from holdfast.errors import CorruptError

CLASS = "haystack"
"""The key that has the name of an object's class; its fields are under `fields`."""
CLASSES = {
    item.__name__: item
    for item in (
        ByteStream,
        ChatMessage,
        Document,
        ExtractedAnswer,
        FileContent,
        GeneratedAnswer,
        ImageContent,
        ReasoningContent,
        SparseEmbedding,
        TextContent,
        ToolCall,
        ToolCallResult,
    )
}
_STABLE = (
    *(str, int, float, type(None), bytes, dt.date, dt.time, dt.timedelta),
    *(decimal.Decimal, uuid.UUID, pathlib.PurePath),
)


def dump_value(value: Any) -> Any:
    """Return a value with the objects of Haystack as plain data."""
    return _convert(value, lambda other: other)


def identify_value(value: Any) -> Any:
    """Return what is the same of a value in every process; callbacks are left out.

    Of an unknown object that is its class: its text may have an address.
    """
    return _convert(value, _identify_object, is_callback_kept=False)


def load_value(stored: Any) -> Any:
    """Return a value as it was before `dump_value`."""
    if isinstance(stored, dict):
        kind = CLASSES.get(stored.get(CLASS)) if stored.keys() == {CLASS, "fields"} else None
        if kind is not None:
            return _load_object(kind, stored["fields"])
        return {name: load_value(value) for name, value in stored.items()}
    if type(stored) in (list, tuple):
        return type(stored)(load_value(item) for item in stored)
    return stored


def dump_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    return [_convert(message.to_dict(), lambda other: other) for message in messages]


def load_messages(stored: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    return [_load_object(ChatMessage, item) for item in stored]


def check_messages(messages: Any) -> None:
    """Raise `CorruptError` for what are no messages that agents of Haystack can work with."""
    if not isinstance(messages, list) or not all(isinstance(message, ChatMessage) for message in messages):
        raise CorruptError(f"the store has {messages!r:.100} where messages of Haystack should be")
    for usage in (message.meta.get("usage") for message in messages):
        if isinstance(usage, dict) and any(number != number for number in usage.values()):  # noqa: PLR0124 - NaN
            raise CorruptError(f"the store has a ChatMessage whose usage is none: {usage!r:.100}")


def _check_parts(message: Any) -> None:
    """Raise `CorruptError` if parts of a message are not what its class declares.

    Haystack does not check them.
    """
    calls = [*message.tool_calls, *(result.origin for result in message.tool_call_results)]
    texts = [*message.texts, *(call.tool_name for call in calls)]
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(call.arguments, dict) for call in calls):
        raise CorruptError(f"the store has a ChatMessage that is none of Haystack: {message!r:.100}")


def identify_message(message: Any) -> Any:
    """Return what a model reads of a message: not its metadata, which may have times."""
    if not isinstance(message, ChatMessage):
        return identify_value(message)
    return {name: value for name, value in identify_value(message.to_dict()).items() if name != "meta"}


def as_json(value: Any) -> Any:
    """Return a value as JSON values; objects that have no such form become text."""
    return json.loads(json.dumps(value, default=_plain_object))


def read_as_model(result: Any) -> str:
    """Return a tool's result as the text that Haystack makes of it for the model."""
    try:
        return json.dumps(result, default=_to_dict, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(result)


def _convert(value: Any, convert_other: Callable[[Any], Any], *, is_callback_kept: bool = True) -> Any:
    def convert(item: Any) -> Any:
        return _convert(item, convert_other, is_callback_kept=is_callback_kept)

    kind = type(value)
    if kind is dict:
        return {name: convert(item) for name, item in value.items() if is_callback_kept or not _is_callback(item)}
    if kind in (list, tuple):
        return kind(map(convert, value))
    if CLASSES.get(kind.__name__) is kind:
        return {CLASS: kind.__name__, "fields": convert(_fields_of(value))}
    return convert_other(value)


def _fields_of(value: Any) -> dict[str, Any]:
    if isinstance(value, ByteStream):
        return {"data": value.data, "meta": value.meta, "mime_type": value.mime_type}
    if isinstance(value, Document):
        fields = value.to_dict(flatten=False)  # flat, a key of `meta` could hide a field
        return fields if value.blob is None else {**fields, "blob": _fields_of(value.blob)}
    return dict(value.to_dict())


def _load_object(kind: Any, fields: Any) -> Any:
    try:
        loaded = kind.from_dict(load_value(fields))
        if kind is ChatMessage:
            _check_parts(loaded)
        return loaded
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptError(
            f"the store has a {kind.__name__} of Haystack that can't be read ({error!r:.100}). Another version of "
            "Haystack may have saved it"
        ) from error


def _is_callback(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def _identify_object(value: Any) -> Any:
    if isinstance(value, _STABLE):
        return value
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", warnings=False)
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return type(value).__qualname__


def _to_dict(value: Any) -> Any:
    return value.to_dict()


def _plain_object(value: Any) -> Any:
    for name in ("to_dict", "model_dump"):
        if hasattr(value, name):
            return getattr(value, name)()
    return str(value)
