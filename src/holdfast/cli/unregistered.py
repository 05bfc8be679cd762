"""Objects of types that only the agent's own program knows: the command line shows their names and parts."""

from __future__ import annotations

from typing import Any, NoReturn

from holdfast.codec.types import RegisteredType, TypeRegistry


class Unregistered:
    """An object as it is stored: the name its type was registered under, and its parts."""

    __slots__ = ("name", "parts")

    def __init__(self, name: str, parts: Any) -> None:
        self.name = name
        self.parts = parts

    def __repr__(self) -> str:
        return f"{self.name}({self.parts!r})"


class _AsStored:
    def __init__(self, name: str) -> None:
        self._name = name

    def take_apart(self, value: Any) -> NoReturn:
        raise NotImplementedError(f"{value!r} is only looked at")

    def rebuild(self, parts: Any) -> Unregistered:
        return Unregistered(self._name, parts)


class AnyTypes(TypeRegistry):
    """A registry in which every name is known, so that any state can be looked at (and none be saved)."""

    def named(self, name: str) -> RegisteredType:
        return RegisteredType(Unregistered, name, _AsStored(name))
