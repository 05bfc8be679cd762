"""How messages are taken apart: what each has beside what every new message of its class has, too.

A conversation is encoded again at every step, to find out what is new in it. Of a message's nine fields most are empty:
leaving these out halves the time and the bytes.
"""

from __future__ import annotations

from typing import Any

from holdfast.codec.pydantic_models import PydanticKind

_BESIDE = ""  # as in pydantic_models: no field has this name
_UNSET: Any = object()


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
