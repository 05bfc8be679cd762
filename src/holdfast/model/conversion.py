"""Conversion of an edit's value to the type of the value that it replaces. Pure.

JSON and the command line have only texts and numbers. If the old value is an Enum, a datetime, a
Decimal or the like, a text or number is converted to that type if that is exact, and refused
otherwise: plain data never replaces a typed value. `None` and values that have a type of their own
replace anything. So does a `Replacement`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.errors import UsageError

NAMES_LISTED = 12
_PLAIN = (str, int, float, bool)
_UNTYPED = (*_PLAIN, list, tuple, dict, set, frozenset, type(None))


class Replacement(NamedTuple):
    """A value that replaces another one whatever the types of both are."""

    value: Any


class WrittenValue(NamedTuple):
    """A value as a person wrote it: its value as JSON, and its text."""

    value: Any
    text: str


class NamedValue(NamedTuple):
    """The stored parts of an object, with the name of its type, which may be unknown here."""

    type_name: str
    parts: Any


class _InexactError(Exception):
    """The value is no exact value of the type. The message says what to write."""


def unwrap(new: Any, path: str) -> Any:
    """Return the value of an edit that replaces nothing."""
    if isinstance(new, NamedValue):
        raise UsageError(
            f"{path!r:.120} is given the type {new.type_name!r:.60}, which is not known here, and no "
            "value of that type stands there"
        )
    return new.value if isinstance(new, Replacement | WrittenValue) else new


def convert(old: Any, new: Any, path: str) -> Any:
    """Return the value that replaces `old`: `new`, converted to the type of `old` if it is plain data.

    Raises `UsageError` if there is no exact conversion.
    """
    if isinstance(new, Replacement):
        return new.value
    if isinstance(new, NamedValue):
        if getattr(old, "type_name", None) != new.type_name:
            raise UsageError(
                f"{path!r:.120} is given the type {new.type_name!r:.60}, which is not known here: only "
                "a value of that type can be "
                f"replaced so, and a {_type_name(old)} stands there"
            )
        return old.with_parts(new.parts)
    value = new.value if isinstance(new, WrittenValue) else new
    if type(old) in _UNTYPED:
        return _convert_container(old, value) if isinstance(new, WrittenValue) else value
    if type(value) not in (*_PLAIN, list, dict):
        return value
    if hasattr(old, "get_secret_value"):  # the new value is a secret, too, and stays out of the message
        raise UsageError(
            f"{path!r:.120} is a secret that was left out of the store: plain data can't replace it, as no rule might "
            "leave that out again. Give an object of its type, from a program. Nothing was changed"
        )
    text = new.text if isinstance(new, WrittenValue) and not isinstance(value, str | list | dict) else None
    try:
        return _convert_to_type(old, value, text, path)
    except UsageError:  # of one of its fields
        raise
    except (_InexactError, ValueError, TypeError, ArithmeticError) as error:
        shown = value if text is None else text
        problem = str(error) if isinstance(error, _InexactError) else _hint(old)
        raise UsageError(
            f"{path!r:.120} has the type {_type_name(old)}, and {shown!r:.80} is no value of it: "
            f"{problem}. Nothing was changed"
        ) from None


def _convert_container(old: Any, value: Any) -> Any:
    """Return a list as the old value's tuple or set: JSON can't express these."""
    if type(value) is not list or type(old) not in (tuple, set, frozenset):
        return value
    return type(old)(value)


def _convert_to_type(old: Any, value: Any, text: str | None, path: str) -> Any:
    """Return the value as one of the type of `old`. `text` is a number as a person wrote it."""
    if hasattr(old, "with_parts"):
        return _convert_unknown(old, value, path)
    if isinstance(old, Enum):
        return _member(type(old), value)
    if isinstance(value, dict):
        return _with_fields(old, value, path)
    convert = _CONVERSIONS.get(type(old))
    if convert is None or isinstance(value, list | bool):
        raise _InexactError(_hint(old))
    result = convert(value if text is None else text)
    if isinstance(result, datetime | time) and (result.tzinfo is None) != (old.tzinfo is None):
        raise _InexactError(
            f"write it {'with' if old.tzinfo is not None else 'without'} an offset from UTC, as {old.isoformat()}"
        )
    return result


def _member(kind: type[Enum], value: Any) -> Enum:
    """Return the member of that name, or of that value; the two must not be different members."""
    by_name = kind.__members__.get(value) if isinstance(value, str) else None
    by_value = next((member for member in kind if type(member.value) is type(value) and member.value == value), None)
    if by_value is None and issubclass(kind, Flag) and type(value) is int:
        combined = kind(value)
        by_value = combined if isinstance(combined, kind) and combined.value == value else None
    if by_name is not None and by_value is not None and by_name is not by_value:
        raise _InexactError(
            f"it is the name of {by_name!r} and the value of {by_value!r}. Give the member itself, from a program"
        )
    found = by_name if by_name is not None else by_value
    if found is None:
        raise _InexactError(f"write one of {_join_names(kind.__members__)}")
    return found


def _convert_unknown(old: Any, value: Any, path: str) -> Any:
    """Return an object of an unknown class with the value.

    Its members or fields can't be checked, except against the present ones.
    """
    parts = old.parts
    if isinstance(value, dict) and isinstance(parts, dict) and value.keys() == parts.keys():
        return old.with_parts({name: convert(parts[name], value[name], f"{path}.{name}") for name in parts})
    name = old.type_name
    raise _InexactError(
        f"its class is not known here. On the command line, write "
        f'{{"$type": "{name}", "value": …}} with the value as `show --json` prints it. In a program, '
        f"register {name} first"
    )


def _with_fields(old: Any, value: Mapping[str, Any], path: str) -> Any:
    """Return a dataclass or pydantic model with these fields, each converted to the field's type."""
    if dataclasses.is_dataclass(old) and not isinstance(old, type):
        names = [field.name for field in dataclasses.fields(old) if field.init]
    else:
        names = list(getattr(type(old), "model_fields", ()))
    if not names:
        raise _InexactError(_hint(old))
    if set(names) != value.keys():
        raise _InexactError(
            f"it has the fields {_join_names(names)}. Give all of them, or set them one by one ({path}.{names[0]})"
        )
    fields = {name: convert(getattr(old, name), value[name], f"{path}.{name}") for name in names}
    if dataclasses.is_dataclass(old) and not isinstance(old, type):
        return dataclasses.replace(old, **fields)
    return old.model_copy(update=fields)


def _seconds(value: Any) -> timedelta:
    given = Decimal(_exact_number(value))
    micros = given * 1_000_000
    if micros != int(micros):
        raise _InexactError("write it in seconds, with at most six decimals")
    return timedelta(microseconds=int(micros))


def _exact_number(value: Any) -> str:
    if isinstance(value, float):
        raise _InexactError("a float is not exact: give the digits as a text")
    return str(value)


def _text(convert: Callable[[str], Any]) -> Callable[[Any], Any]:
    def of_text(value: Any) -> Any:
        if not isinstance(value, str):
            raise TypeError
        return convert(value)

    return of_text


_CONVERSIONS: dict[type[Any], Callable[[Any], Any]] = {
    datetime: _text(datetime.fromisoformat),
    date: _text(date.fromisoformat),
    time: _text(time.fromisoformat),
    timedelta: _seconds,
    Decimal: lambda value: Decimal(_exact_number(value)),
    Fraction: lambda value: Fraction(_exact_number(value)),
    UUID: _text(UUID),
    complex: complex,
}
_HINTS: dict[type[Any], str] = {
    datetime: "write it as 2026-11-16T12:00:00+00:00",
    date: "write it as 2026-11-16",
    time: "write it as 12:00:00",
    timedelta: "write it in seconds, such as 90 or 0.5",
    Decimal: "write it in digits, such as 12.50",
    Fraction: "write it as 1/3",
    UUID: "write its 32 hexadecimal digits",
    complex: "write it as 1+2j",
    bytes: 'write {"$type": "bytes", "value": …} with the bytes in Base64',
}


def _hint(old: Any) -> str:
    return _HINTS.get(type(old), "give a value of that type, from a program")


def _type_name(value: Any) -> str:
    return str(getattr(value, "type_name", None) or type(value).__name__)


def _join_names(names: Any) -> str:
    listed = [str(name) for name in names]
    return ", ".join(listed[:NAMES_LISTED]) + (", …" if len(listed) > NAMES_LISTED else "")
