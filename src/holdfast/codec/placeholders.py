"""Placeholders that upper layers put into a value before it is encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ref:
    """A placeholder for a part of a value that is stored elsewhere.

    `kind` is 0 for a list kept in a log, 1 for a blob of str, 2 for a blob of bytes. `Codec.decode`
    asks its `resolve` for the part.
    """

    kind: int
    index: int


class TypedObject:
    """A registered object taken apart: its registered name, and its stored parts.

    `fields` is the payload and may be changed, for instance to put a Ref where a long list was.
    With an unchanged payload, it encodes to the same bytes as the object. For classes with fields
    `fields` is a dict of field to value.
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Any) -> None:
        self.name = name
        self.fields = fields

    def __repr__(self) -> str:
        return f"TypedObject({self.name!r}, {self.fields!r})"


class RedactedObject:
    """A registered object in which rules have redacted parts: its registered name, and its stored parts."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Any) -> None:
        self.name = name
        self.fields = fields
