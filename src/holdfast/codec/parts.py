"""What the layers above may put in a value's place before it is encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ref:
    """Stands for a part of a value that is stored elsewhere.

    `kind` is 0 for a list kept in a log, 1 for a blob of str, 2 for a blob of bytes. `Codec.decode` asks its `resolve`
    for what a Ref stands for.
    """

    kind: int
    index: int


class Typed:
    """A registered object taken apart: its registered name, and what is stored of it.

    `fields` is the payload and may be changed, for instance to put a Ref where a long list was. With an unchanged
    payload, it encodes to the same bytes as the object. For classes with fields `fields` is a dict of field to value.
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Any) -> None:
        self.name = name
        self.fields = fields

    def __repr__(self) -> str:
        return f"Typed({self.name!r}, {self.fields!r})"
