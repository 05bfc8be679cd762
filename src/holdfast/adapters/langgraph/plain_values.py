"""Objects that LangGraph stores without their class: they are stored, and come back, as plain data.

There are two kinds. Subclasses of the plain types that add nothing to the plain value (the `text`
of a message is a str of its own class): LangGraph's own savers write the value of the base class.
And data classes that no later process could find by name, because they were defined in a function:
their fields are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from holdfast.codec.class_kinds import Kind, is_set, kind_of, slots_of
from holdfast.codec.registry import PlainType
from holdfast.codec.unsupported import Refusal, refusal
from holdfast.errors import UsageError

_NOT_FIELDS = ""  # as in pydantic_models: no field has this name

# By base class what its own methods say of a value. Those of the subclass are not asked: they may
# say anything.
_PLAIN: dict[type[Any], Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes(memoryview(value)),
    dict: lambda value: dict(dict.items(value)),
    list: lambda value: [*list.__iter__(value)],
    tuple: lambda value: (*tuple.__iter__(value),),
}


def subclass_entry(cls: type[Any]) -> PlainType | None:
    """Return the stored form of a subclass of a plain type; None for other classes."""
    base = next((base for base in _PLAIN if issubclass(cls, base)), None)
    if base is None:
        return None
    plain, slots = _PLAIN[base], slots_of(cls)

    def take_apart(value: Any) -> Any:
        if getattr(value, "__dict__", None) or any(is_set(value, slot) for slot in slots):
            raise refusal(value)
        return plain(value)

    return PlainType(cls, take_apart)


def local_entry(cls: type[Any]) -> PlainType:
    """Return the stored form of a data class that can't be found by name.

    An Enum's member is stored as its value, other objects as a dict of their fields.
    """
    if issubclass(cls, Enum):
        return PlainType(cls, lambda member: member.value)
    try:
        kind = kind_of(cls, cls.__qualname__)
    except UsageError as error:
        raise Refusal(str(error), f"See holdfast.register for {cls.__name__}") from error
    return PlainType(cls, lambda value: _fields(kind, value))


def _fields(kind: Kind, value: Any) -> dict[str, Any]:
    fields: dict[str, Any] = dict(kind.take_apart(value))
    stored = fields.pop(_NOT_FIELDS, None)
    return {**fields, **(stored[1] or {})} if stored else fields
