"""Objects whose type this process can't rebuild: their plain data, with the name of the type.

A removed or renamed class, field or Enum member must not make the rest of a state unreadable. With
`on_unknown_type="plain"` such an object comes back as one of the values here. Saved again, it is
stored under its name, byte for byte as it was: a process that knows the type reads it as the
original object.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

from holdfast.codec.placeholders import TypedObject
from holdfast.codec.unsupported import Refusal
from holdfast.errors import HoldfastWarning, UnknownTypeError, UsageError

OnUnknownType = Literal["raise", "plain"]

_NOT_FIELDS: Final = ""  # as in `pydantic_kind.py`: no field has this name; it holds the rest of a model
KEY_STEP, MEMBER_STEP = "<key>", "<member>"  # steps of a path to a key of a dict, or to a member of a set
_MAX_NAME = 200
_SIMPLE = (str, bytes, int, float, type(None))
_MOST_VISITED = 200_000  # values, in the search for an object's path


class UnknownValue:
    """Plain data of an object whose type is unknown here, or has changed.

    `type_name` is the name that it is stored under. Most are also a `dict` (of fields), `list` or
    `str` (an Enum's member), and can be used as such; for others `plain` is the data.
    """

    type_name: str

    @property
    def plain(self) -> Any:
        """Return the data, without the name."""
        raise NotImplementedError  # each of the four kinds has its own

    @property
    def parts(self) -> Any:
        """Return the data that an edit may change, as `plain`."""
        return self.plain

    def with_parts(self, parts: Any) -> UnknownValue:
        """Return an object of the same type with other data."""
        cls: Any = _BY_PARTS.get(type(parts), UnknownObject)
        made: UnknownValue = cls(parts)
        made.type_name = self.type_name
        if isinstance(made, UnknownDict) and isinstance(self, UnknownDict):
            made._rest = self._rest
        return made

    def _parts(self) -> Any:
        """Return the data stored under the name."""
        return self.plain

    def _is(self, other: object) -> bool:
        return not isinstance(other, UnknownValue) or other.type_name == self.type_name


class UnknownDict(UnknownValue, dict[Any, Any]):
    """The fields of a dataclass, attrs class, NamedTuple or pydantic model.

    Also the dict that a registered class's `encode` returned.
    """

    _rest: tuple[Any, ...] = ()  # pydantic's data besides the fields

    @property
    def plain(self) -> dict[Any, Any]:
        return dict(self)

    def _parts(self) -> dict[Any, Any]:
        return {**self, _NOT_FIELDS: self._rest[0]} if self._rest else dict(self)

    def __eq__(self, other: object) -> bool:
        return self._is(other) and dict.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    # Objects are members of sets and keys, and so must their substitutes be.
    def __hash__(self) -> int:  # type: ignore[override]  # dict and list have None
        return _hash_of(self.items())

    def __repr__(self) -> str:
        return f"UnknownDict({self.type_name!r}, {dict.__repr__(self)})"


class UnknownList(UnknownValue, list[Any]):
    """The list that a registered class's `encode` returned."""

    @property
    def plain(self) -> list[Any]:
        return list(self)

    def __eq__(self, other: object) -> bool:
        return self._is(other) and list.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]  # dict and list have None
        return _hash_of(self)

    def __repr__(self) -> str:
        return f"UnknownList({self.type_name!r}, {list.__repr__(self)})"


class UnknownStr(UnknownValue, str):  # noqa: SLOT000 - it has the attributes of an UnknownValue
    """The name of an Enum's member, or the str that a registered class's `encode` returned."""

    @property
    def plain(self) -> str:
        return str.__str__(self)

    def __eq__(self, other: object) -> bool:
        return self._is(other) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        return f"UnknownStr({self.type_name!r}, {str.__repr__(self)})"


class UnknownObject(UnknownValue):
    """Any other data, as `plain` gives it."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    @property
    def plain(self) -> Any:
        return self._plain

    def __eq__(self, other: object) -> bool:
        return type(other) is UnknownObject and self._is(other) and self._plain == other._plain

    def __hash__(self) -> int:
        return _hash_of([self._plain])

    def __repr__(self) -> str:
        return f"UnknownObject({self.type_name!r}, {self._plain!r})"


UNKNOWN: Final[frozenset[type[Any]]] = frozenset({UnknownDict, UnknownList, UnknownStr, UnknownObject})
_BY_PARTS: dict[type[Any], type[UnknownValue]] = {dict: UnknownDict, list: UnknownList, str: UnknownStr}


def unknown_value(name: str, parts: Any) -> UnknownValue | None:
    """Return the substitute of an object stored so; None if no object can be stored under this name."""
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        return None
    make: Callable[[Any], UnknownValue] = _BY_PARTS.get(type(parts), UnknownObject)
    if type(parts) is dict and next(reversed(parts), None) == _NOT_FIELDS:
        stored = parts.pop(_NOT_FIELDS)
        value = make(parts)
        value._rest = (stored,)  # type: ignore[attr-defined]  # it is an UnknownDict
    else:
        value = make(parts)
    value.type_name = name
    return value


def parts_of(value: UnknownValue) -> Any:
    """Return the stored parts of a value, under `value.type_name`."""
    return value._parts()


def checked_choice(given: object) -> OnUnknownType:
    if given == "raise":
        return "raise"
    if given == "plain":
        return "plain"
    raise UsageError(f"on_unknown_type is 'raise' or 'plain', not {given!r:.60}")


def _hash_of(contents: Iterable[Any]) -> int:
    """Return a hash of the parts that can't change, more or less: equal ones have equal hashes."""
    hashes = []
    for content in contents:
        try:
            hashes.append(hash(content))
        except TypeError:
            continue
    return hash(frozenset(hashes))


class UnknownOccurrence(NamedTuple):
    """An object of an unknown type that a decoder has found, and why it is unknown."""

    value: UnknownValue
    error: UnknownTypeError


class LocatedValue(NamedTuple):
    """A value and its location: the beginning of a path's text, and the steps from there."""

    value: Any
    start: str
    steps: tuple[Any, ...] = ()


def warn_of(
    occurrences: list[UnknownOccurrence],
    places: Iterable[LocatedValue],
    take_apart: Callable[[Any], Any],
    text: Callable[[str, list[Any]], str],
) -> None:
    """Warn once for each type that was found, with the path of its first object."""
    first: dict[str, UnknownOccurrence] = {}
    for occurrence in occurrences:
        first.setdefault(occurrence.value.type_name, occurrence)
    wanted = {id(occurrence.value): occurrence for occurrence in first.values()}
    paths: dict[int, str] = {}
    for place in _walk_levels(places, take_apart):
        if id(place.value) in wanted and id(place.value) not in paths:
            paths[id(place.value)] = text(place.start, [*place.steps])
            if len(paths) == len(wanted):
                break
    for identity, occurrence in wanted.items():
        warnings.warn(
            f"{paths.get(identity, 'a value')} came back as plain data, an {type(occurrence.value).__name__}. "
            f"{occurrence.error}. Saved again as it is, it stays a {occurrence.value.type_name!r}",
            HoldfastWarning,
            stacklevel=4,
        )


def _walk_levels(places: Iterable[LocatedValue], take_apart: Callable[[Any], Any]) -> Iterator[LocatedValue]:
    """Yield values level by level: one near the top is found without a search of every long list."""
    waiting = deque(places)
    for _ in range(_MOST_VISITED):
        if not waiting:
            return
        place = waiting.popleft()
        yield place
        waiting += [
            LocatedValue(inside, place.start, (*place.steps, step))
            for step, inside in _contents(place.value, take_apart)
        ]


def _contents(value: Any, take_apart: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    """Return the direct contents of a value, with the steps that lead there."""
    if isinstance(value, UnknownObject):
        return [("plain", value.plain)]
    if type(value) is UnknownDict and value._rest:
        return [*_attributes(value._rest[0]), *value.items()]
    if isinstance(value, dict):
        return [
            *((KEY_STEP, key) for key in value if not isinstance(key, _SIMPLE) or type(key) in UNKNOWN),
            *value.items(),
        ]
    if isinstance(value, list | tuple):
        return [*enumerate(value)]
    if isinstance(value, set | frozenset):
        return [(MEMBER_STEP, member) for member in value]
    if isinstance(value, _SIMPLE):
        return []
    try:
        taken = take_apart(value)
    except (UsageError, Refusal):
        return []
    fields = taken.fields if type(taken) is TypedObject else taken
    if type(fields) is dict:
        return [*_attributes(fields.get(_NOT_FIELDS)), *(item for item in fields.items() if item[0] != _NOT_FIELDS)]
    return _contents(fields, take_apart) if type(fields) is list else []


def _attributes(stored: Any) -> list[tuple[str, Any]]:
    """Return the attributes of a pydantic model besides its fields."""
    attributes = [own for own in stored if type(own) is dict] if type(stored) is list else []
    return [item for own in attributes for item in own.items()]
