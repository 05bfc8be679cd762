"""How messages are taken apart: what each has beside what every new message of its class has, too.

A conversation is encoded again at every step, to find out what is new in it. Of a message's nine fields most are empty:
leaving these out halves the time and the bytes.
"""

from __future__ import annotations

from typing import Any

import langchain_core.messages

from holdfast.codec.pydantic_models import PydanticKind
from holdfast.objects.witness import ATOMS

_BESIDE = ""  # as in pydantic_models: no field has this name
_UNSET: Any = object()
_MESSAGES = (
    "AIMessage", "AIMessageChunk", "ChatMessage", "ChatMessageChunk", "FunctionMessage", "FunctionMessageChunk",
    "HumanMessage", "HumanMessageChunk", "RemoveMessage", "SystemMessage", "SystemMessageChunk", "ToolMessage",
    "ToolMessageChunk",
)  # fmt: skip


MESSAGE_CLASSES: frozenset[type[Any]] = frozenset(getattr(langchain_core.messages, name) for name in _MESSAGES)


class MessageKind:
    """`encode` and `decode` for one class of messages. Fields that hold None, an empty list or dict, or the class's
    own `type`, and would hold it by default, are left out."""

    def __init__(self, cls: type[Any], name: str) -> None:
        self._kind = PydanticKind(cls, name)
        # By field what is left out; `_UNSET`, which no message holds, for those that are always stored.
        self._usual: dict[str, Any] = {}
        for field, about in cls.__pydantic_fields__.items():
            default = _UNSET if about.is_required() else about.get_default(call_default_factory=True)
            is_plain = default is None or default in ([], {}) or (field == "type" and type(default) is str)
            self._usual[field] = default if is_plain else _UNSET

    def encode(self, message: Any) -> dict[str, Any]:
        held = message.__dict__
        if len(held) != len(self._usual):
            self._kind.take_apart(message)  # refuses what is missing, or what would be lost
        # In the order of the fields, whatever that of the attributes is: equal messages have equal encodings.
        parts: dict[str, Any] = {}
        for field, usual in self._usual.items():
            value = held[field]
            if value is not usual and (usual is None or value != usual or type(value) is not type(usual)):
                parts[field] = value
        extra, private = message.__pydantic_extra__, message.__pydantic_private__
        were_set = sorted(message.__pydantic_fields_set__)
        parts[_BESIDE] = [were_set, extra, private] if extra or private is not None else ",".join(were_set)
        return parts

    def decode(self, parts: dict[str, Any]) -> Any:
        beside = parts[_BESIDE]
        if type(beside) is str:
            beside = [beside.split(",") if beside else [], None, None]
        whole = {field: _anew(value) for field, value in self._usual.items() if value is not _UNSET}
        return self._kind.rebuild({**whole, **parts, _BESIDE: beside})


def _anew(value: Any) -> Any:
    """An empty list or dict of the message's own."""
    return value.copy() if isinstance(value, list | dict) else value


def copied(value: Any) -> Any:
    """A copy that shares nothing that can be changed with the value; KeyError if it holds something else than messages and
    plain data."""
    kind = type(value)
    if kind in MESSAGE_CLASSES:
        return _copied_message(value, kind)
    if kind in ATOMS:
        return value
    if kind is dict:
        return {name: one if type(one) in ATOMS else copied(one) for name, one in value.items()}
    if kind is list:
        return [one if type(one) in ATOMS else copied(one) for one in value]
    raise KeyError(kind)


def _copied_message(value: Any, kind: type[Any]) -> Any:
    held = value.__dict__.copy()
    for name, one in held.items():
        its = type(one)
        if its not in ATOMS:
            held[name] = copied(one) if (its is not list and its is not dict) or one else its()
    extra, private = value.__pydantic_extra__, value.__pydantic_private__
    copy = object.__new__(kind)
    put = object.__setattr__
    put(copy, "__dict__", held)
    put(copy, "__pydantic_fields_set__", value.__pydantic_fields_set__.copy())
    put(copy, "__pydantic_extra__", copied(extra) if extra else None if extra is None else {})
    put(copy, "__pydantic_private__", None if private is None else copied(private))
    return copy
