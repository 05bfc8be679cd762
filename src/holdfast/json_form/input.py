"""JSON values from people and programs, with `{"$type": …}` as `--json` prints it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from holdfast.errors import UsageError
from holdfast.json_form.values import TYPE
from holdfast.model.conversion import NamedValue, Replacement, WrittenValue


def parse_assignment(text: str) -> tuple[str, Any]:
    """Return the path and value of `PATH=VALUE`; non-JSON is a text, unless it begins like JSON."""
    path, is_given, value = text.partition("=")
    if not is_given or not path:
        raise UsageError(f"{text!r:.80} gives no value: write PATH=VALUE, such as plan.0=search or budget=500")
    try:
        given = json.loads(value)
    except (ValueError, RecursionError):
        given = None
    return path, _typed_edit(path, given) if _is_typed(given) else WrittenValue(parse_value(value, path), value)


def read_edit(path: str, given: Any) -> Any:
    """Return the new value of an edit, given as parsed JSON."""
    return _typed_edit(path, given) if _is_typed(given) else WrittenValue(read_value(given, path), json.dumps(given))


def _is_typed(given: Any) -> bool:
    return isinstance(given, dict) and given.keys() == {TYPE, "value"} and isinstance(given[TYPE], str)


def _typed_edit(path: str, given: dict[str, Any]) -> Any:
    """Return the value of `{"$type": …, "value": …}`, whose type may be unknown here."""
    name: str = given[TYPE]
    if name not in _MEANT:
        return NamedValue(name, read_value(given["value"], path))
    meant = read_value(given, path)
    return Replacement(meant) if name in _REPLACEMENTS else meant


def parse_value(text: str, parameter: str) -> Any:
    try:
        given = json.loads(text)
    except ValueError as error:
        if text[:1] in ("{", "[", '"'):
            raise UsageError(f"the value of {parameter!r:.60} begins like JSON, and is none: {error}") from None
        return text
    return read_value(given, parameter)


def read_value(given: Any, parameter: str) -> Any:
    """Return the value of parsed JSON; errors name it `what`."""
    if isinstance(given, list):
        return [read_value(item, parameter) for item in given]
    if not isinstance(given, dict):
        return given
    if given.keys() != {TYPE, "value"}:
        return {key: read_value(item, parameter) for key, item in given.items()}
    name, value = given[TYPE], given["value"]
    if not isinstance(name, str) or name not in _MEANT:
        known = ", ".join(_MEANT)
        raise UsageError(
            f"the value of {parameter!r:.60} has the type {name!r:.60}, which can't be given here. Known are {known}"
        )
    try:
        return _MEANT[name](value if isinstance(value, str) else read_value(value, parameter))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(f"the value of {parameter!r:.60} is no {name}: {error}") from None


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
