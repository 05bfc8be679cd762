"""Values as people give them on the command line: JSON, with `{"$type": …}` as `--json` prints it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from holdfast.cli.json_output import TYPE
from holdfast.errors import UsageError


def assignment(text: str) -> tuple[str, Any]:
    """The path and the value of `PATH=VALUE`. What is no JSON is a text, unless it begins like JSON."""
    path, is_given, value = text.partition("=")
    if not is_given or not path:
        raise UsageError(f"{text!r:.80} gives no value: write PATH=VALUE, such as plan.0=search or budget=500")
    return path, value_of(value, path)


def value_of(text: str, what: str) -> Any:
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
    if name not in _MEANT:
        known = ", ".join(_MEANT)
        raise UsageError(
            f"the value of {what!r:.60} has the type {name!r:.60}, which can't be given here. Known are {known}"
        )
    try:
        return _MEANT[name](value if isinstance(value, str) else _meant(value, what))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(f"the value of {what!r:.60} is no {name}: {error}") from None


_MEANT: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 0),
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
}
