"""Validation of values by the schema of a contract: strict for who sends, lenient for who reads.

jsonschema-rs validates. It knows the values of JSON only, so it sees a *view* of a value, in which
dates, UUIDs, decimals and bytes are the texts that JSON Schema describes them by.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.errors import UsageError
from holdfast.model.contract_schema import Schema, canonical_text

MOST_PROBLEMS = 20
DEEPEST_VALUE = 200
_SCHEMAS_IN_LISTS = ("prefixItems", "anyOf", "oneOf")
_SCHEMAS_IN_MAPS = ("properties", "$defs")


class ContractProblem(NamedTuple):
    """A place where a value differs from its contract."""

    path: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.path}: {self.expected}, got {self.got}"


def is_sendable(schema: Schema, value: Any) -> bool:
    """Return whether a sender may send a value: it has every required field, and no unknown one."""
    return bool(_validator(canonical_text(schema), is_strict=True).is_valid(view_of(value)))


def is_readable(schema: Schema, value: Any) -> bool:
    """Return whether a reader accepts a value: unknown fields are ignored, defaults are filled in."""
    return bool(_validator(canonical_text(schema), is_strict=False).is_valid(view_of(value)))


def find_problems(schema: Schema, value: Any, *, is_strict: bool) -> list[ContractProblem]:
    """Return where a value differs from a schema, at most `MOST_PROBLEMS` places."""
    view = view_of(value)
    found: list[ContractProblem] = []
    for error in _validator(canonical_text(schema), is_strict=is_strict).iter_errors(view):
        path = "$" + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.instance_path)
        got = view
        for one in error.instance_path:
            got = got[one]
        found.append(ContractProblem(path, str(error.message)[:200], f"{got!r:.80}"))
        if len(found) == MOST_PROBLEMS:
            break
    return found


def view_of(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON Schema sees it; what has no such form is its type's name in brackets."""
    if depth > DEEPEST_VALUE:
        raise UsageError(f"a value that is handed over is nested more than {DEEPEST_VALUE} levels deep")
    match value:
        case Enum():
            return view_of(value.value, depth + 1)
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): view_of(one, depth + 1) for key, one in value.items()}
        case list() | tuple() | AbstractSet():
            return [view_of(one, depth + 1) for one in value]
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return _duration(value)
        case UUID() | Decimal() | PurePath():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    plain = plain_fields(value)
    return f"<{type(value).__name__}>" if plain is None else view_of(plain, depth + 1)


def plain_fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of an instance of a model, a dataclass or a struct; None if it is none of them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    for names in ("model_fields", "__struct_fields__"):  # of pydantic, of msgspec
        fields = getattr(type(value), names, None)
        if fields is not None:
            return {name: getattr(value, name) for name in fields}
    return None


def _duration(value: timedelta) -> str:
    """Return a duration as ISO 8601 writes it."""
    days, seconds = value.days, value.seconds + value.microseconds / 1_000_000
    return f"P{days}DT{seconds:g}S"


@lru_cache(maxsize=256)
def _validator(text: str, *, is_strict: bool) -> Any:
    import json

    try:
        import jsonschema_rs
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "jsonschema-rs is not installed, which contracts need: pip install 'holdfast[contracts]'", name=error.name
        ) from error
    schema = json.loads(text)
    return jsonschema_rs.Draft202012Validator(_adapt(schema, is_strict=is_strict))


def _adapt(part: Any, *, is_strict: bool) -> Any:
    """Return a schema as a sender's, which refuses unknown fields, or as a reader's.

    A reader's ignores them, and needs no field that has a default.
    """
    if not isinstance(part, dict):
        return part
    made = {
        keyword: (
            _adapt(inner, is_strict=is_strict)
            if keyword in ("items", "additionalProperties")
            else [_adapt(one, is_strict=is_strict) for one in inner]
            if keyword in _SCHEMAS_IN_LISTS
            else {name: _adapt(one, is_strict=is_strict) for name, one in inner.items()}
            if keyword in _SCHEMAS_IN_MAPS
            else inner
        )
        for keyword, inner in part.items()
        if keyword != "pattern"  # it can be slow on hostile texts: the contract's class checks it
    }
    if is_strict:
        if "properties" in made:
            made.setdefault("additionalProperties", False)
        return made
    if made.get("additionalProperties") is False:
        del made["additionalProperties"]
    fields: Any = made.get("properties", {})
    if "required" in made:
        made["required"] = [name for name in made["required"] if "default" not in fields.get(name, {})]
    return made
