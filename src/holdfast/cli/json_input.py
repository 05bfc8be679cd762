"""JSON values on the command line, with `{"$type": …}` as `--json` prints it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import click

from holdfast.cli.output.json import TYPE
from holdfast.errors import UsageError
from holdfast.model.conversion import NamedValue, Replacement, WrittenValue

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {
    "": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-z]*)", re.ASCII)


def _read(text: str, units: dict[str, int]) -> float | None:
    found = _QUANTITY.fullmatch(text.strip().lower())
    factor = units.get(found[2]) if found else None
    return None if found is None or factor is None else float(found[1]) * factor


def parse_duration(text: str) -> timedelta:
    seconds = _read(text, _SECONDS)
    if seconds is None or seconds > timedelta.max.total_seconds() / 2:
        raise click.BadParameter(f"{text!r:.40} is no duration: write 45s, 90m, 12h, 30d or 2w")
    return timedelta(seconds=seconds)


def parse_size(text: str) -> int:
    count = _read(text, _BYTES)
    if count is None:
        raise click.BadParameter(f"{text!r:.40} is no size: write 200KB, 500MB, 1.5GB or 2GiB")
    return round(count)


def parse_json_option(text: str, option: str) -> Any:
    """Return the JSON value of an option; raise a usage error that names the option."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint=option) from error


def parse_assignment(text: str) -> tuple[str, Any]:
    """Return the path and value of `PATH=VALUE`; non-JSON is a text, unless it begins like JSON."""
    path, is_given, value = text.partition("=")
    if not is_given or not path:
        raise UsageError(f"{text!r:.80} gives no value: write PATH=VALUE, such as plan.0=search or budget=500")
    name, parts = _object_given(value, path)
    if name is not None and name not in _MEANT:
        return path, NamedValue(name, parts)
    meant = parse_value(value, path)
    if name is not None:
        return path, meant if name not in _REPLACEMENTS else Replacement(meant)
    return path, WrittenValue(meant, value)


def _object_given(text: str, what: str) -> tuple[str | None, Any]:
    """Return the type and the parts of `{"$type": …, "value": …}`; None and None of anything else."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(given, dict) or given.keys() != {TYPE, "value"} or not isinstance(given[TYPE], str):
        return None, None
    name: str = given[TYPE]
    return name, None if name in _MEANT else _meant(given["value"], what)


def parse_value(text: str, what: str) -> Any:
    try:
        given = json.loads(text)
    except ValueError as error:
        if text[:1] in ("{", "[", '"'):
            raise UsageError(f"the value of {what!r:.60} begins like JSON, and is none: {error}") from None
        return text
    return _meant(given, what)


def _meant(given: Any, what: str) -> Any:
    if isinstance(given, list):
        return [_meant(item, what) for item in given]
    if not isinstance(given, dict):
        return given
    if given.keys() != {TYPE, "value"}:
        return {key: _meant(item, what) for key, item in given.items()}
    name, value = given[TYPE], given["value"]
    if not isinstance(name, str) or name not in _MEANT:
        known = ", ".join(_MEANT)
        raise UsageError(
            f"the value of {what!r:.60} has the type {name!r:.60}, which can't be given here. Known are {known}"
        )
    try:
        return _MEANT[name](value if isinstance(value, str) else _meant(value, what))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(f"the value of {what!r:.60} is no {name}: {error}") from None


_MEANT: dict[str, Callable[[Any], Any]] = {
    "str": str,
    "bool": bool,
    "int": lambda given: int(given, 0) if isinstance(given, str) else int(given),
    "float": float,
    "bytes": base64.b64decode,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda text: timedelta(seconds=float(text)),
    "Decimal": Decimal,
    "Fraction": Fraction,
    "UUID": UUID,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "list": list,
}
_REPLACEMENTS = frozenset({"str", "bool", "int", "float", "dict", "list"})  # plain data where a type is named for it
