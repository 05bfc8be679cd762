"""Which classes may be stored beside plain data, and under what names.

The data only ever holds a name. What it stands for is decided by the process that reads it, so data can't make a
process import or run anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

import ormsgpack

from holdfast.codec.builtin import BUILTIN_TYPES
from holdfast.codec.kinds import CustomKind, Kind, kind_of
from holdfast.codec.parts import Ref, Typed
from holdfast.errors import UnknownTypeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_Class = TypeVar("_Class", bound=type[Any])
_MAX_NAME = 200
# These are ours or carry meaning in the format; some never reach a hook where they could be told apart.
_RESERVED = BUILTIN_TYPES | {memoryview, ormsgpack.Ext, ormsgpack.Fragment, Ref, Typed, object, type}


class RegisteredType:
    """One registered class. `header` is how the encoding of each of its objects begins."""

    __slots__ = ("cls", "header", "name", "rebuild", "take_apart")

    def __init__(self, cls: type[Any], name: str, kind: Kind) -> None:
        self.cls = cls
        self.name = name
        self.header = object_header(name)
        self.take_apart = kind.take_apart
        self.rebuild = kind.rebuild


def object_header(name: str) -> bytes:
    return b"\x92" + ormsgpack.packb(name)


class TypeRegistry:
    """Classes whose objects may be stored. `by_class` and `by_name` are for reading.

    `plain` are classes whose objects are encoded from what they refer to, and from nothing else: with these, a process
    remembers the objects of long lists, to see without encoding them that they are unchanged (objects/witness.py).
    """

    plain: frozenset[type[Any]] = frozenset()

    def __init__(self) -> None:
        self.by_class: dict[type[Any], RegisteredType] = {}
        self.by_name: dict[str, RegisteredType] = {}

    @overload
    def register(
        self,
        cls: _Class,
        name: str | None = None,
        *,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> _Class: ...

    @overload
    def register(
        self,
        cls: None = None,
        name: str | None = None,
        *,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> Callable[[_Class], _Class]: ...

    def register(
        self,
        cls: Any = None,
        name: str | None = None,
        *,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Let objects of exactly this class (not of its subclasses) be stored; also a decorator.

        A dataclass, attrs class, pydantic model, Enum or NamedTuple needs nothing more. For any other class give
        `encode`, which turns an object into supported data, and `decode`, which turns that data into the object.

        `name` is what the data says instead of the class; by default the class's `__qualname__`. Keep it when the
        class is renamed or moved.
        """
        if cls is None:
            return lambda decorated: self.register(decorated, name, encode=encode, decode=decode)
        if not isinstance(cls, type):
            raise UsageError(f"register takes a class, not {cls!r}")
        chosen = cls.__qualname__ if name is None else name
        _check_name(chosen)
        if cls in _RESERVED:
            raise UsageError(f"{cls.__qualname__} can't be registered: holdfast itself decides how it is stored")
        if (encode is None) != (decode is None):
            raise UsageError(f"register {cls.__qualname__} with both encode= and decode=, or with neither")
        if self._is_registered(cls, chosen):
            return cls
        if encode is not None and decode is not None:
            kind: Kind = CustomKind(chosen, encode, decode)
        else:
            kind = kind_of(cls, chosen)
        entry = RegisteredType(cls, chosen, kind)
        self.by_name[chosen] = entry
        self.by_class[cls] = entry
        return cls

    def _is_registered(self, cls: type[Any], name: str) -> bool:
        holder, known = self.by_name.get(name), self.by_class.get(cls)
        if holder is not None and holder.cls is not cls:
            raise UsageError(
                f"The name {name!r} is taken by {holder.cls.__module__}.{holder.cls.__qualname__}: "
                f"register {cls.__module__}.{cls.__qualname__} under another one, register(cls, name=...)"
            )
        if known is not None and known.name != name:
            raise UsageError(f"{cls.__qualname__} is already registered, as {known.name!r}")
        return known is not None

    def named(self, name: str) -> RegisteredType:
        """The class registered under this name. Raises UnknownTypeError if there is none."""
        entry = self.by_name.get(name)
        if entry is None:
            raise UnknownTypeError(
                f"The data holds an object of the type {name[:_MAX_NAME]!r}, which is not registered here. "
                f"Before reading it, import the module that registers it or add holdfast.register(cls, name={name[:_MAX_NAME]!r})"
            )
        return entry


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise UsageError(f"A type's name is a printable str of 1 to {_MAX_NAME} characters, not {name!r}")


default_types = TypeRegistry()
"""The process-wide registry, which `holdfast.register` fills."""

register = default_types.register
