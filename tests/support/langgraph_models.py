"""Classes at the top of a module, as a program defines them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from pydantic import BaseModel


class Mood(Enum):
    GLAD = "glad"


@dataclass
class Note:
    text: str
    tags: list[str] = field(default_factory=list)


class Plan(BaseModel):
    goal: str
    steps: list[Note] = []


class Point(NamedTuple):
    x: int
    y: int


class Opaque:
    """Neither a dataclass nor anything else that is data by its nature."""

    def __init__(self) -> None:
        self.handle = object()


class Own(str):
    """Subclasses of plain types that have nothing but the plain value."""

    __slots__ = ()


class OwnInt(int):
    pass


class OwnFloat(float):
    pass


class OwnBytes(bytes):
    pass


class OwnDict(dict):
    pass


class OwnList(list):
    pass


class OwnTuple(tuple):
    __slots__ = ()


class Slotted(str):
    __slots__ = ("note",)
