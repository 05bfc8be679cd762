"""Objects in stored form: names and parts, comparable without their classes."""

from __future__ import annotations

from typing import Any

from holdfast.codec.codec import Codec
from holdfast.codec.placeholders import TypedObject
from holdfast.codec.registry import RegisteredType, TypeRegistry
from holdfast.errors import CorruptError

_SIMPLE = frozenset((str, bytes, int, bool, type(None)))
NO_TYPE = "\0"  # no class can be registered under this name, nor is data with it decoded


class _LeftApart:
    """A kind whose objects stay `TypedObject`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def take_apart(self, value: Any) -> Any:
        raise NotImplementedError  # codecs encode a TypedObject by themselves

    def rebuild(self, parts: Any) -> TypedObject:
        return TypedObject(self._name, parts)


class StoredTypes(TypeRegistry):
    """A registry in which every name is known: each object is decoded as a `TypedObject`."""

    def named(self, name: str) -> RegisteredType:
        known = self.by_name.get(name)
        if known is None:
            if name == NO_TYPE:
                raise CorruptError("The data is damaged: an object has no name")
            known = self.by_name[name] = RegisteredType(TypedObject, name, _LeftApart(name))
        return known


def stored_codec(codec: Codec) -> Codec:
    """Return a codec with the limits of this one that decodes objects as they are stored."""
    return Codec(StoredTypes(), codec.limits)


def put_together(codec: Codec, value: Any, path: str) -> Any:
    """Return the value with each object rebuilt from its parts; other containers are unchanged."""
    kind = type(value)
    if kind is TypedObject:
        return codec.rebuild(value.name, put_together(codec, value.fields, path), path)
    if kind is list:
        items = [put_together(codec, item, path) for item in value]
        return value if all(map(_is, items, value)) else items
    if kind is dict and _SIMPLE.issuperset(map(type, value)):
        items = [put_together(codec, item, path) for item in value.values()]
        return value if all(map(_is, items, value.values())) else dict(zip(value, items, strict=True))
    if kind is dict or kind is tuple or kind is set or kind is frozenset:
        # Objects may be keys and members here, which the decoder checks: two may be equal, or unhashable.
        return codec.decode(codec.encode(value, path, parts=True), path=path)
    return value


def _is(value: Any, other: Any) -> bool:
    return value is other
