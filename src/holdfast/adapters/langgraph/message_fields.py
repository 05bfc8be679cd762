"""Messages as their non-default fields.

A conversation is encoded again at every step, to find its new parts. Most of a message's nine
fields are empty: leaving these out halves the time and the bytes.
"""

from __future__ import annotations

from functools import lru_cache
from sys import intern
from typing import Any

import langchain_core.messages
from pydantic import BaseModel

from holdfast.codec.pydantic_kind import PydanticKind

_NOT_FIELDS = ""  # as in pydantic_models: no field has this name
_UNSET: Any = object()
_MOST_NAMES = 4096  # characters of the names of all fields that were set
_MESSAGES = (
    "AIMessage", "AIMessageChunk", "ChatMessage", "ChatMessageChunk", "FunctionMessage", "FunctionMessageChunk",
    "HumanMessage", "HumanMessageChunk", "RemoveMessage", "SystemMessage", "SystemMessageChunk", "ToolMessage",
    "ToolMessageChunk",
)  # fmt: skip


MESSAGE_CLASSES: frozenset[type[Any]] = frozenset(getattr(langchain_core.messages, name) for name in _MESSAGES)


class MessageKind:
    """`encode` and `decode` for one class of messages.

    A field is left out if its value is its default and is None, an empty list or dict, or the
    class's own `type`.
    """

    def __init__(self, cls: type[Any], name: str) -> None:
        self._kind = PydanticKind(cls, name)
        # By field, the value that is left out; `_UNSET`, which no message holds, for fields that
        # are always stored.
        self._usual: dict[str, Any] = {}
        for field, about in cls.__pydantic_fields__.items():
            default = _UNSET if about.is_required() else about.get_default(call_default_factory=True)
            is_plain = default is None or default in ([], {}) or (field == "type" and type(default) is str)
            self._usual[field] = default if is_plain else _UNSET
        self._cls = cls
        self._required = frozenset(field for field, usual in self._usual.items() if usual is _UNSET)
        self._known = frozenset((*self._usual, _NOT_FIELDS))
        self._empty = [(field, type(usual)) for field, usual in self._usual.items() if type(usual) in (list, dict)]
        self._has_extra = cls.model_config.get("extra") == "allow"
        self._has_private = bool(cls.__private_attributes__)

    def encode(self, message: Any) -> dict[str, Any]:
        held = message.__dict__
        if len(held) != len(self._usual):
            self._kind.take_apart(message)  # refuses missing fields, and values that would be lost
        # In the order of the fields, whatever that of the attributes is: equal messages have equal
        # encodings.
        parts: dict[str, Any] = {}
        for field, usual in self._usual.items():
            value = held[field]
            if value is not usual and (type(value) is not type(usual) or value != usual):
                parts[field] = value
        extra, private = message.__pydantic_extra__, message.__pydantic_private__
        were_set = sorted(message.__pydantic_fields_set__)
        parts[_NOT_FIELDS] = [were_set, extra, private] if extra or private is not None else ",".join(were_set)
        return parts

    def decode(self, parts: dict[str, Any]) -> Any:
        stored = parts[_NOT_FIELDS]
        if type(stored) is str and len(stored) > _MOST_NAMES:
            raise ValueError("it names more fields than a message has")
        if type(stored) is not str or self._has_private or not self._required <= parts.keys() <= self._known:
            return self._rebuild(parts, stored)
        held = self._usual.copy()
        for field, make_empty in self._empty:
            held[field] = make_empty()  # of the message's own
        held.update(parts)
        del held[_NOT_FIELDS]
        return make_message(self._cls, held, set(_names(stored)), {} if self._has_extra else None)

    def _rebuild(self, parts: dict[str, Any], stored: Any) -> Any:
        """Rebuild a message that has more than its fields, or was stored by another version of its class."""
        if type(stored) is str:
            stored = [[*_names(stored)], None, None]
        whole = {field: usual for field, usual in self._usual.items() if usual is not _UNSET}
        whole.update((field, make_empty()) for field, make_empty in self._empty)
        return self._kind.rebuild({**whole, **parts, _NOT_FIELDS: stored})


@lru_cache(maxsize=1024)
def _names(joined: str) -> tuple[str, ...]:
    """Return the names as shared texts: thousands of messages have one copy."""
    return tuple(map(intern, joined.split(","))) if joined else ()


def make_message(
    cls: type[Any],
    held: dict[str, Any],
    were_set: set[str],
    extra: dict[str, Any] | None,
    private: dict[str, Any] | None = None,
) -> Any:
    """Make a message with these attributes, unchecked, without running code of its class."""
    message = object.__new__(cls)
    _put_attributes(message, held)
    _put_were_set(message, were_set)
    _put_extra(message, extra)
    _put_private(message, private)
    return message


# `object.__setattr__` would look these up by name: half the time of making a message.
_put_attributes, _put_were_set, _put_extra, _put_private = (
    vars(BaseModel)[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)
