"""Objects of types that only the agent's own program knows.

The command line shows their names and parts, and writes them as they were.
"""

from __future__ import annotations

from typing import Any, Self

from holdfast.codec.registry import RegisteredType, TypeRegistry


class UnregisteredObject:
    """An object as it is stored: the name its type was registered under, and its parts."""

    __slots__ = ("name", "parts")

    def __init__(self, name: str, parts: Any) -> None:
        self.name = name
        self.parts = parts

    @property
    def type_name(self) -> str:
        return self.name

    def with_parts(self, parts: Any) -> Self:
        return type(self)(self.name, parts)

    def __repr__(self) -> str:
        from holdfast.model.diff import NOT_FIELDS

        if type(self.parts) is not dict or not all(type(field) is str for field in self.parts):
            return f"{self.name}({self.parts!r})"
        fields = (f"{field}={value!r}" for field, value in self.parts.items() if field != NOT_FIELDS)
        return f"{self.name}({', '.join(fields)})"


class _StoredKind:
    def __init__(self, name: str, made: type[UnregisteredObject]) -> None:
        self._name = name
        self._made = made

    def take_apart(self, value: Any) -> Any:
        return value.parts

    def rebuild(self, parts: Any) -> UnregisteredObject:
        return self._made(self._name, parts)


class AnyTypes(TypeRegistry):
    """A registry that knows every name, so that any state can be shown, and saved again unchanged."""

    def named(self, name: str) -> RegisteredType:
        known = self.by_name.get(name)
        if known is None:
            # A class for each name: an object is stored under the name that its class is registered
            # by.
            made = type("Unregistered", (UnregisteredObject,), {"__slots__": ()})
            known = self.by_name[name] = self.by_class[made] = RegisteredType(made, name, _StoredKind(name, made))
        return known
