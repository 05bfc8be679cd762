"""Objects of types that only the agent's own program knows: the command line shows their names and parts, and
writes them as they were."""

from __future__ import annotations

from typing import Any, Self

from holdfast.codec.types import RegisteredType, TypeRegistry


class Unregistered:
    """An object as it is stored: the name its type was registered under, and its parts."""

    __slots__ = ("name", "parts")

    def __init__(self, name: str, parts: Any) -> None:
        self.name = name
        self.parts = parts

    def with_parts(self, parts: Any) -> Self:
        return type(self)(self.name, parts)

    def __repr__(self) -> str:
        return f"{self.name}({self.parts!r})"


class _AsStored:
    def __init__(self, name: str, made: type[Unregistered]) -> None:
        self._name = name
        self._made = made

    def take_apart(self, value: Any) -> Any:
        return value.parts

    def rebuild(self, parts: Any) -> Unregistered:
        return self._made(self._name, parts)


class AnyTypes(TypeRegistry):
    """A registry in which every name is known, so that any state can be looked at, and be saved again as it was."""

    def named(self, name: str) -> RegisteredType:
        known = self.by_name.get(name)
        if known is None:
            # A class for each name: an object is stored under the name that its class is registered by.
            made = type("Unregistered", (Unregistered,), {"__slots__": ()})
            known = self.by_name[name] = self.by_class[made] = RegisteredType(made, name, _AsStored(name, made))
        return known
