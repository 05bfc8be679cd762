"""The registry of classes that may be stored, and their names.

The data only ever holds a name. The process that reads it decides which class the name means, so
data can't make a process import or run anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

import ormsgpack

from holdfast.codec.builtin_types import BUILTIN_TYPES, path_encoder
from holdfast.codec.class_kinds import CustomKind, Kind, kind_of
from holdfast.codec.nested_classes import classes_in_fields
from holdfast.codec.placeholders import RedactedObject, Ref, TypedObject
from holdfast.codec.unknown_types import UNKNOWN
from holdfast.errors import UnknownTypeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_Class = TypeVar("_Class", bound=type[Any])
_MAX_NAME = 200
# These are ours or have a meaning in the format; some never reach a hook that could tell them
# apart.
_HOLDFASTS = {Ref, TypedObject, RedactedObject}
_RESERVED = BUILTIN_TYPES | UNKNOWN | _HOLDFASTS | {memoryview, ormsgpack.Ext, ormsgpack.Fragment, object, type}


class RegisteredType:
    """One registered class. `header` begins the encoding of each of its objects."""

    __slots__ = ("cls", "header", "name", "rebuild", "take_apart")
    is_plain = False
    take_apart: Callable[[Any], Any]

    def __init__(self, cls: type[Any], name: str, kind: Kind) -> None:
        self.cls = cls
        self.name = name
        self.header = object_header(name)
        self.take_apart = kind.take_apart
        self.rebuild = kind.rebuild


class PlainType(RegisteredType):
    """A class whose objects are stored as plain data, without a name: they come back as that data."""

    __slots__ = ()
    is_plain = True

    def __init__(self, cls: type[Any], plain: Callable[[Any], Any]) -> None:
        self.cls = cls
        self.name = ""
        self.header = b""
        self.take_apart = plain


def object_header(name: str) -> bytes:
    return b"\x92" + ormsgpack.packb(name)


class TypeRegistry:
    """Classes whose objects may be stored. `by_class`, `by_name` and `along` are read-only for others."""

    def __init__(self) -> None:
        self.by_class: dict[type[Any], RegisteredType] = {}
        self.by_name: dict[str, RegisteredType] = {}
        self.along: set[type[Any]] = set()  # registered because a field of another class names them

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

        A dataclass, attrs class, pydantic model, Enum or NamedTuple needs nothing more. For any
        other class give `encode`, which turns an object into supported data, and `decode`, which
        turns that data into the object.

        `name` stands for the class in the data; by default it is the class's `__qualname__`. Keep
        it when the class is renamed or moved. Data classes in the annotations of its fields are
        registered along with it, by their own names.
        """
        if cls is None:
            return lambda decorated: self.register(decorated, name, encode=encode, decode=decode)
        if not isinstance(cls, type):
            raise UsageError(f"register takes a class, not {cls!r}")
        chosen = cls.__qualname__ if name is None else name
        _check_name(chosen)
        if cls in _RESERVED or path_encoder(cls) is not None:
            raise UsageError(f"{cls.__qualname__} can't be registered: holdfast itself decides how it is stored")
        if (encode is None) != (decode is None):
            raise UsageError(f"register {cls.__qualname__} with both encode= and decode=, or with neither")
        self._make_way(cls, chosen)
        if self._is_registered(cls, chosen):
            return cls
        if encode is not None and decode is not None:
            kind: Kind = CustomKind(chosen, encode, decode)
        else:
            kind = kind_of(cls, chosen)
        entry = RegisteredType(cls, chosen, kind)
        self.by_name[chosen] = entry
        self.by_class[cls] = entry
        if encode is None:
            self._register_nested(cls)
        return cls

    def _register_nested(self, cls: type[Any]) -> None:
        """Register the data classes in a class's field annotations, unless they or their names are taken.

        The caller may still register them otherwise.
        """
        for nested in classes_in_fields(cls):
            name = nested.__qualname__
            if nested in self.by_class or name in self.by_name or nested in _RESERVED or len(name) > _MAX_NAME:
                continue
            try:
                self.register(nested)
            except UsageError:  # it can't be stored as it is: the error is raised when an object of it is stored
                continue
            self.along.add(nested)

    def _make_way(self, cls: type[Any], name: str) -> None:
        """Drop a class that was registered along with another, in favour of the caller's own registration."""
        holder = self.by_name.get(name)
        for known in {cls, cls if holder is None else holder.cls} & self.along:
            self.along.discard(known)
            del self.by_name[self.by_class.pop(known).name]

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
        """Return the class registered under this name; raise `UnknownTypeError` if there is none."""
        entry = self.by_name.get(name) or _standard_entry(name)
        if entry is None:
            raise UnknownTypeError(
                f"The data holds an object of the type {name[:_MAX_NAME]!r}, which is not registered here. Before "
                "reading it, import the module that registers it or add holdfast.register(cls, "
                f"name={name[:_MAX_NAME]!r})"
            )
        return entry


def _standard_entry(name: str) -> RegisteredType | None:
    from holdfast.codec import standard_types  # which makes entries of this module's class

    return standard_types.find_entry(name)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise UsageError(f"A type's name is a printable str of 1 to {_MAX_NAME} characters, not {name!r}")


default_types = TypeRegistry()
"""The process-wide registry, which `holdfast.register` fills."""

register = default_types.register
