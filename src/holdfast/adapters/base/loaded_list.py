"""A list of the state as objects of the framework, each made once while the list only grows.

To make a thousand messages in each turn would take longer than the rest of it. But a framework, a
hook or the user may change an object that a turn was given. So each object has a fingerprint, and
one that was changed since is made again of what is stored.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

import ormsgpack

from holdfast.adapters.base.state_copy import copy_value
from holdfast.adapters.base.unreadable import refuse_unreadable
from holdfast.codec.codec import Codec

_OPTIONS = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_DATETIME_AS_TIMESTAMP_EXT
    | ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_IMMUTABLE_MODULES = ("datetime", "decimal", "fractions", "uuid")  # `repr` says all about their objects


class _LoadedElement(NamedTuple):
    stored: Any  # the very object of the session's state, which never changes
    loaded: Any
    fingerprint: bytes | None


class LoadedList:
    """The objects that one resumable object keeps of a list; `load` makes them of stored elements."""

    def __init__(self, load: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._load = load
        self._elements: list[_LoadedElement] = []

    @property
    def fingerprints(self) -> list[bytes | None]:
        """The fingerprints of the objects, as they were taken last."""
        return [element.fingerprint for element in self._elements]

    def take(self, stored: Sequence[Any], codec: Codec) -> list[Any]:
        """Return the objects of a stored list, which may be another one than before."""
        known = [element.stored for element in self._elements]
        same = sum(1 for _ in takewhile(bool, map(operator.is_, known, stored)))
        elements = self._elements[:same]
        for place, found in enumerate(map(fingerprint, [element.loaded for element in elements])):
            if found is None or found != elements[place].fingerprint:
                elements[place] = self._make([elements[place].stored], codec)[0]
        self._elements = [*elements, *self._make(stored[same:], codec)]
        return [element.loaded for element in self._elements]

    def _make(self, stored: Sequence[Any], codec: Codec) -> list[_LoadedElement]:
        if not stored:
            return []
        with refuse_unreadable("the stored conversation"):
            loaded = self._load(copy_value(list(stored), codec))  # an object may have parts of what it was made of
        return [_LoadedElement(item, made, fingerprint(made)) for item, made in zip(stored, loaded, strict=True)]


def fingerprint(value: Any) -> bytes | None:
    """Return bytes that differ if anything in an object differs; None if it holds what can't be told."""
    try:
        return ormsgpack.packb(value, _parts, _OPTIONS)
    except Exception:  # of any kind: objects of others are asked for their parts
        return None


def _parts(value: Any) -> Any:
    """Return what an object consists of, with its type; raise TypeError if that can't be known."""
    kind: Any = type(value)
    name = _name_of_plain(kind)
    if name is not None:  # most of them
        return [name, value.__dict__]
    if kind is set or kind is frozenset:
        return [kind.__name__, sorted(map(repr, value))]
    slots = _slots(kind)
    if slots is not None:
        return [_name_of(kind), getattr(value, "__dict__", None), *(getattr(value, slot, None) for slot in slots)]
    if isinstance(value, Enum):
        return [_name_of(kind), value.name]
    if kind is tuple:
        return [_name_of(kind), list(value)]
    if kind is int or kind.__module__ in _IMMUTABLE_MODULES:
        return [_name_of(kind), repr(value)]
    raise TypeError(f"{_name_of(kind)} may hold anything")


@cache
def _name_of_plain(kind: Any) -> str | None:
    """Return the name of a class whose objects have all of their parts in `__dict__`; else None."""
    return _name_of(kind) if kind.__dictoffset__ and _slots(kind) == () else None


@cache
def _slots(kind: Any) -> tuple[str, ...] | None:
    """Return the slots of a class that is written in Python; None if a part of its objects is not."""
    python = 1 << 9  # Py_TPFLAGS_HEAPTYPE
    if not all(item.__flags__ & python for item in kind.__mro__[:-1]):
        return None
    found = [item.__dict__.get("__slots__", ()) for item in kind.__mro__]
    names = [name for item in found for name in ((item,) if isinstance(item, str) else item)]
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


@cache
def _name_of(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
