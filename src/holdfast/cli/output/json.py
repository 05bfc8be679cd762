"""The output of `--json`: fields are added, never renamed or removed. See docs/json-output.md."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

from holdfast.cli.unknown_types import UnregisteredObject
from holdfast.model.checkpoint import Checkpoint

TYPE = "$type"
EXACT_IN_JSON = 2**53 - 1  # beyond, most readers of JSON round


def print_json(value: Any) -> None:
    """Print JSON in ASCII only: nothing in a name or a state can act as a command to the terminal."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def checkpoint_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields of a checkpoint: everything but the state."""
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "short_id": checkpoint.short_id,
        "session_id": checkpoint.session_id,
        "agent_id": checkpoint.agent_id,
        "parent_id": checkpoint.parent_id,
        "tree_id": checkpoint.tree_id,
        "sequence": checkpoint.sequence,
        "step_index": checkpoint.step_index,
        "step_name": checkpoint.step_name,
        "framework": str(checkpoint.framework),
        "created_at": format_time(checkpoint.created_at),
        "ttl_seconds": checkpoint.ttl_seconds,
        "expires_at": format_time(checkpoint.expires_at) if checkpoint.expires_at else None,
        "handoff_target": checkpoint.handoff_target,
        "handoff_schema": checkpoint.handoff_schema,
        "metadata": to_json(dict(checkpoint.metadata)),
        "tasks": to_json(checkpoint.tasks),
        "workspace": checkpoint.workspace,
        "app_version": checkpoint.app_version,
        "state_version": checkpoint.state_version,
        "schema_version": checkpoint.schema_version,
        "checksum": checkpoint.checksum,
    }


def format_time(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def to_json(value: Any) -> Any:
    """Return a value as JSON can say it; other types are `{"$type": ..., "value": ...}`."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -EXACT_IN_JSON <= value <= EXACT_IN_JSON else _typed("int", _digits(value))
    if kind is float:
        return value if math.isfinite(value) else _typed("float", repr(value))
    if kind is list:
        return [to_json(item) for item in value]
    if kind is dict:
        return _mapping(value)
    if issubclass(kind, UnregisteredObject):
        return _typed(value.name, to_json(value.parts))
    if kind in (tuple, set, frozenset):
        return _typed(kind.__name__, [to_json(item) for item in value])
    if isinstance(value, PurePath):
        return _typed(kind.__name__, str(value))
    encode = _FORMATS.get(kind, repr)
    return _typed(kind.__name__, encode(value))


def _mapping(value: Mapping[Any, Any]) -> Any:
    # An object that already has "$type" would be taken for one of ours: it is written as pairs.
    if TYPE not in value and all(type(key) is str for key in value):
        return {key: to_json(item) for key, item in value.items()}
    return _typed("dict", [[to_json(key), to_json(item)] for key, item in value.items()])


def _typed(name: str, value: Any) -> dict[str, Any]:
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
