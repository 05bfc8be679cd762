"""How messages are taken apart: what each has beside what every new message of its class has, too.

A conversation is encoded again at every step, to find out what is new in it. Of a message's nine fields most are empty:
leaving these out halves the time and the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import langchain_core.messages
from pydantic import BaseModel

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
    if kind in ATOMS:
        return value
    if kind is dict:
        return {name: one if type(one) in ATOMS else copied(one) for name, one in value.items()}
    if kind is list:
        return [one if type(one) in ATOMS else copied(one) for one in value]
    return copies_of(value)()


def copies_of(value: Any) -> Callable[[], Any]:
    """What makes such copies, one with each call: for many of them, what there is to copy is found out once. The value must not
    change meanwhile."""
    kind = type(value)
    if kind not in MESSAGE_CLASSES:
        if kind not in ATOMS and kind is not dict and kind is not list:
            raise KeyError(kind)
        copied(value)  # raises now what it would raise then
        return partial(copied, value)
    empty: list[tuple[str, type[Any]]] = []
    filled: list[tuple[str, Any]] = []
    for name, one in value.__dict__.items():
        its = type(one)
        if its in ATOMS:
            continue
        if (its is list or its is dict) and not one:
            empty.append((name, its))
        else:
            copied(one)
            filled.append((name, one))
    extra, private = value.__pydantic_extra__, value.__pydantic_private__
    beside = None if private is None else copied(private)
    return partial(_made, kind, value.__dict__, empty, filled, value.__pydantic_fields_set__, extra, beside)


def _made(
    kind: type[Any],
    held: dict[str, Any],
    empty: list[tuple[str, type[Any]]],
    filled: list[tuple[str, Any]],
    were_set: set[str],
    extra: dict[str, Any] | None,
    private: dict[str, Any] | None,
) -> Any:
    own = held.copy()
    for name, its in empty:
        own[name] = its()
    for name, one in filled:
        own[name] = copied(one)
    made = object.__new__(kind)
    _put_attributes(made, own)
    _put_were_set(made, were_set.copy())
    _put_extra(made, copied(extra) if extra else None if extra is None else {})
    _put_private(made, None if private is None else copied(private))
    return made


# What `object.__setattr__` would find by their names: half the time of making a message goes into that.
_put_attributes, _put_were_set, _put_extra, _put_private = (
    vars(BaseModel)[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)
