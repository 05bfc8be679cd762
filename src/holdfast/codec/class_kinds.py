"""Kinds of registered classes: how their objects become parts and are rebuilt.

A kind is chosen once, at registration. Objects are rebuilt without `__init__` or validation: the
stored parts came from a living object, and side effects of `__init__` (open a file, take an id)
must not happen again.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from enum import Enum, Flag
from functools import cached_property
from typing import Any, Protocol

from holdfast.codec.unsupported import Refusal
from holdfast.errors import HoldfastError, UnknownTypeError, UsageError

# attrs caches the hash of `cache_hash=True` classes here; None means that it is not known yet.
_ATTRS_HASH = "_attrs_cached_hash"
# Attributes that say nothing about an object's value; typing sets the second on objects made by
# `Cls[int](...)`.
_NO_DATA = frozenset({_ATTRS_HASH, "__orig_class__"})
# A Flag iterates over the bits of its value.
_MAX_FLAG_BITS = 1024


class Kind(Protocol):
    def take_apart(self, value: Any) -> Any:
        """Return the stored parts of `value`; raise `Refusal` if they would not be all of it."""

    def rebuild(self, parts: Any) -> Any:
        """Return the object of `parts`; raise `UnknownTypeError` if the class has changed since."""


def kind_of(cls: type[Any], name: str) -> Kind:
    """Return the kind of a class that is registered without `encode` and `decode`."""
    if issubclass(cls, Enum):
        return EnumKind(cls, name)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return NamedTupleKind(cls, name)
    if dataclasses.is_dataclass(cls):
        return FieldsKind(cls, name, _dataclass_fields(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return FieldsKind(cls, name, _attrs_fields(cls))
    if hasattr(cls, "__pydantic_core_schema__"):
        from holdfast.codec.pydantic_kind import PydanticKind

        return PydanticKind(cls, name)
    raise UsageError(
        f"{cls.__qualname__} is no dataclass, attrs class, pydantic model, Enum or NamedTuple: "
        "say how it is stored with register(cls, encode=..., decode=...)"
    )


def make_change_error(name: str, change: str) -> UnknownTypeError:
    """Return the error for a class registered as `name` that no longer fits its stored object."""
    return UnknownTypeError(
        f"The class registered as {name!r} has changed since the data was saved: {change}. "
        "Restore with the class as it was, or register a class that still fits under this name"
    )


Default = Callable[[Any], Any]
"""Gives a field's default for the object that is being rebuilt."""


class FieldsKind:
    """A dataclass or attrs class: its fields by name."""

    def __init__(self, cls: type[Any], name: str, fields: dict[str, Default | None]) -> None:
        try:
            object.__new__(cls)
        except TypeError as error:
            raise UsageError(
                f"{cls.__qualname__} can't be rebuilt without calling it ({error}): "
                "say how it is stored with register(cls, encode=..., decode=...)"
            ) from error
        self._cls = cls
        self._name = name
        self._fields = fields
        self._recomputed = cached_properties(cls)
        slots = slots_of(cls)
        # An object without slots gets this attribute in `__init__` only, so its `__hash__` is checked.
        hash_code = getattr(cls.__hash__, "__code__", None)
        self._caches_hash = hash_code is not None and _ATTRS_HASH in hash_code.co_names
        self._other_slots = tuple(slots - fields.keys() - {_ATTRS_HASH})

    def take_apart(self, value: Any) -> dict[str, Any]:
        try:
            parts = {name: getattr(value, name) for name in self._fields}
        except Exception as error:
            raise Refusal(f"one of its fields can't be read ({error})", "Set it, or give it a default") from error
        held = getattr(value, "__dict__", None)
        if held and not held.keys() <= self._fields.keys():
            self._refuse_unknown(held.keys() - self._fields.keys() - self._recomputed - _NO_DATA)
        for slot in self._other_slots:
            if is_set(value, slot):
                self._refuse_unknown({slot})
        return parts

    def _refuse_unknown(self, names: set[str]) -> None:
        if names:
            raise Refusal(
                f"its attribute {min(names)!r} is no field of {self._cls.__qualname__} and would be lost",
                "Declare it as a field (init=False keeps it out of __init__), "
                "or register the class with encode=... and decode=...",
            )

    def rebuild(self, parts: Any) -> Any:
        check_fields(self._name, parts, self._fields)
        value = object.__new__(self._cls)
        put = object.__setattr__
        if self._caches_hash:
            put(value, _ATTRS_HASH, None)
        for field, default in self._fields.items():
            if field in parts:
                put(value, field, parts[field])
            elif default is not None:
                put(value, field, default(value))
            else:
                raise make_change_error(self._name, f"its field {field!r} was not stored and has no default")
        return value


def check_fields(name: str, parts: Any, fields: Any) -> None:
    if type(parts) is not dict:
        raise make_change_error(name, f"its parts were stored as {type(parts).__name__}, not by field")
    for field in parts:
        if field not in fields:
            raise make_change_error(name, f"the stored field {field!r} is gone")


def _dataclass_fields(cls: type[Any]) -> dict[str, Default | None]:
    fields: dict[str, Default | None] = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            fields[field.name] = _make_default(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            fields[field.name] = _default_from(field.default_factory)
        else:
            fields[field.name] = None
    return fields


def _attrs_fields(cls: type[Any]) -> dict[str, Default | None]:
    nothing = sys.modules["attr"].NOTHING  # loaded, or there would be no attrs class
    fields: dict[str, Default | None] = {}
    for attribute in cls.__attrs_attrs__:
        default = attribute.default
        if default is nothing:
            fields[attribute.name] = None
        elif hasattr(default, "factory") and hasattr(default, "takes_self"):
            fields[attribute.name] = default.factory if default.takes_self else _default_from(default.factory)
        else:
            fields[attribute.name] = _make_default(default)
    return fields


def _make_default(default: Any) -> Default:
    return lambda _value: default


def _default_from(factory: Callable[[], Any]) -> Default:
    return lambda _value: factory()


def cached_properties(cls: type[Any]) -> frozenset[str]:
    """Return the attributes that an object recomputes when they are missing."""
    return frozenset(
        name for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, cached_property)
    )


def slots_of(cls: type[Any]) -> frozenset[str]:
    names: set[str] = set()
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            private = slot.startswith("__") and not slot.endswith("__")
            names.add(f"_{base.__name__.lstrip('_')}{slot}" if private else slot)
    return frozenset(names - {"__dict__", "__weakref__"})


def is_set(value: Any, slot: str) -> bool:
    try:
        object.__getattribute__(value, slot)
    except AttributeError:
        return False
    return True


class NamedTupleKind:
    def __init__(self, cls: type[Any], name: str) -> None:
        self._cls = cls
        self._name = name

    def take_apart(self, value: Any) -> dict[str, Any]:
        if getattr(value, "__dict__", None):
            raise Refusal("it has attributes besides its fields, which would be lost", "Make them fields")
        return dict(zip(self._cls._fields, tuple(value), strict=True))

    def rebuild(self, parts: Any) -> Any:
        check_fields(self._name, parts, self._cls._fields)
        items = {**self._cls._field_defaults, **parts}
        for field in self._cls._fields:
            if field not in items:
                raise make_change_error(self._name, f"its field {field!r} was not stored and has no default")
        return tuple.__new__(self._cls, [items[field] for field in self._cls._fields])


class EnumKind:
    """A member by its name, so that values may change; a combination of flags by value."""

    def __init__(self, cls: type[Enum], name: str) -> None:
        self._cls = cls
        self._name = name
        self._members: dict[str, Enum] = dict(cls.__members__)

    def take_apart(self, value: Any) -> Any:
        name: str | None = value.name
        if name is not None and self._members.get(name) is value:
            return name
        if issubclass(self._cls, Flag):
            return value.value
        raise Refusal(f"it is no member of {self._cls.__qualname__}", "Declare it as a member")

    def rebuild(self, parts: Any) -> Any:
        if type(parts) is str and parts in self._members:
            return self._members[parts]
        if type(parts) is int and issubclass(self._cls, Flag) and parts.bit_length() <= _MAX_FLAG_BITS:
            try:
                combined = self._cls(parts)
            except ValueError as error:
                raise make_change_error(self._name, f"it has no flags of the value {parts}") from error
            # By its boundary a class may drop unknown bits, or return an int: neither is the saved value.
            # Before Python 3.11.4 a Flag drops them by default.
            if not isinstance(combined, self._cls) or combined.value != parts:
                raise make_change_error(self._name, f"it has no flags of the value {parts}")
            return combined
        raise make_change_error(
            self._name, f"it has no member {str(parts)[:80] if type(parts) is str else 'as stored'!r}"
        )


class CustomKind:
    """A class that was registered with a pair of functions."""

    def __init__(self, name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        self._name = name
        self._encode = encode
        self._decode = decode

    def take_apart(self, value: Any) -> Any:
        try:
            return self._encode(value)
        except HoldfastError:
            raise
        except Exception as error:
            raise Refusal(
                f"the encode function registered for {self._name!r} failed: {error!r}", "Correct that function"
            ) from error

    def rebuild(self, parts: Any) -> Any:
        try:
            return self._decode(parts)
        except HoldfastError:
            raise
        except Exception as error:
            raise UnknownTypeError(
                f"The decode function registered for {self._name!r} failed on what was stored: {error!r}. "
                "Correct that function, or register one that reads what was stored"
            ) from error
