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
    one.__name__: one
    for one in (
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
        return {name: load_value(one) for name, one in stored.items()}
    if type(stored) in (list, tuple):
        return type(stored)(load_value(one) for one in stored)
    return stored


def dump_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    return [_convert(message.to_dict(), lambda other: other) for message in messages]


def load_messages(stored: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    return [_load_object(ChatMessage, one) for one in stored]


def identify_message(message: Any) -> Any:
    """Return what a model reads of a message: not its metadata, which may have times."""
    if not isinstance(message, ChatMessage):
        return identify_value(message)
    return {name: one for name, one in identify_value(message.to_dict()).items() if name != "meta"}


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
    def convert(one: Any) -> Any:
        return _convert(one, convert_other, is_callback_kept=is_callback_kept)

    kind = type(value)
    if kind is dict:
        return {name: convert(one) for name, one in value.items() if is_callback_kept or not _is_callback(one)}
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
        return kind.from_dict(load_value(fields))
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
