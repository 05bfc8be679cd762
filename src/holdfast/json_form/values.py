"""Values as JSON, as `--json` and the HTTP API have them. docs/json-output.md documents the form."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

from holdfast.codec.redacted import is_redacted, reference_of
from holdfast.json_form.unregistered import UnregisteredObject

TYPE = "$type"


EXACT_IN_JSON = 2**53 - 1  # beyond, most readers of JSON round


def format_time(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def to_json(value: Any) -> Any:
    """Return a value as JSON can say it; other types are `{"$type": ..., "value": ...}`."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -EXACT_IN_JSON <= value <= EXACT_IN_JSON else _add_type("int", _digits(value))
    if kind is float:
        return value if math.isfinite(value) else _add_type("float", repr(value))
    if kind is list:
        return [to_json(item) for item in value]
    if kind is dict:
        return _mapping(value)
    if issubclass(kind, UnregisteredObject):
        return _add_type(value.name, to_json(value.parts))
    if kind in (tuple, set, frozenset):
        return _add_type(kind.__name__, [to_json(item) for item in value])
    if is_redacted(value):
        return _add_type("redacted", repr(reference_of(value)))
    if isinstance(value, PurePath):
        return _add_type(kind.__name__, str(value))
    encode = _FORMATS.get(kind, repr)
    return _add_type(kind.__name__, encode(value))


def _mapping(value: Mapping[Any, Any]) -> Any:
    # An object that already has "$type" would be taken for one of ours: it is written as pairs.
    if TYPE not in value and all(type(key) is str for key in value):
        return {key: to_json(item) for key, item in value.items()}
    return _add_type("dict", [[to_json(key), to_json(item)] for key, item in value.items()])


def _add_type(name: str, value: Any) -> dict[str, Any]:
    return {TYPE: name, "value": value}


def _digits(value: int) -> str:
    # Decimal digits of a huge number take quadratic time, and Python refuses them.
    return str(value) if value.bit_length() < 10_000 else hex(value)


def _ratio(value: Fraction) -> str:
    whole = value.denominator == 1
    return _digits(value.numerator) if whole else f"{_digits(value.numerator)}/{_digits(value.denominator)}"


def _base64(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode("ascii")


def _seconds(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    whole, part = divmod(abs(micros), 1_000_000)
    return f"{'-' if micros < 0 else ''}{whole}.{part:06d}"


_FORMATS: dict[type, Callable[[Any], Any]] = {
    bytes: _base64,
    bytearray: _base64,
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: _seconds,
    Decimal: str,
    Fraction: _ratio,
    UUID: str,
    complex: str,
}
