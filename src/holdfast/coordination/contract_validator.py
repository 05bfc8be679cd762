"""Validation of values by the schema of a contract: strict for who sends, lenient for who reads.

jsonschema-rs validates. It knows the values of JSON only, so it sees a *view* of a value, in which
dates, UUIDs, decimals and bytes are the texts that JSON Schema describes them by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.coordination.plain_value import DEEPEST_VALUE, too_deep, unwrap
from holdfast.errors import UsageError
from holdfast.model.contract_schema import Schema, canonical_text, has_default

MOST_PROBLEMS = 20
_LONGEST_INTEGER = 14_000  # in bits; jsonschema-rs reads no longer ones
_SAME = frozenset({float, bool, type(None)})
_SURROGATES = re.compile("[\ud800-\udfff]")
_SCHEMAS_IN_LISTS = ("prefixItems", "anyOf", "oneOf")
_SCHEMAS_IN_MAPS = ("properties", "$defs")


class ContractProblem(NamedTuple):
    """A place where a value differs from its contract."""

    path: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.path}: {self.expected}, got {self.got}"


def is_readable(schema: Schema, value: Any) -> bool:
    """Return whether a reader accepts a value: unknown fields are ignored, defaults are filled in."""
    return reader_check(schema)(value)


def sender_check(schema: Schema) -> Callable[[Any], bool]:
    """Return the check whether a sender may send a value: all required fields, no unknown one."""
    validator = _validator(canonical_text(schema), is_strict=True)
    return lambda value: bool(validator.is_valid(view_of(value)))


def reader_check(schema: Schema) -> Callable[[Any], bool]:
    """Return the check whether a reader accepts a value."""
    validator = _validator(canonical_text(schema), is_strict=False)
    return lambda value: bool(validator.is_valid(view_of(value)))


def find_problems(schema: str, value: Any, *, is_strict: bool) -> list[ContractProblem]:
    """Return where a value differs from a schema in canonical form, at most `MOST_PROBLEMS` places."""
    view = view_of(value)
    found: list[ContractProblem] = []
    for error in _validator(schema, is_strict=is_strict).iter_errors(view):
        path = "$" + "".join(f"[{item}]" if isinstance(item, int) else f".{item}" for item in error.instance_path)
        got = view
        for item in error.instance_path:
            got = got[item]
        found.append(ContractProblem(path, str(error.message)[:200], f"{got!r:.80}"))
        if len(found) == MOST_PROBLEMS:
            break
    return found


def view_of(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON Schema sees it; what has no such form is its type's name in brackets."""
    if type(value) in _SAME:
        return value
    if depth > DEEPEST_VALUE:
        raise too_deep()
    match value:
        case Enum():
            return view_of(value.value, depth + 1)
        case str():
            return _text(value)
        case int():
            if value.bit_length() > _LONGEST_INTEGER:
                raise UsageError(f"a number that is handed over has more than {_LONGEST_INTEGER:,} bits")
            return value
        case dict():
            return {_text(str(key)): view_of(item, depth + 1) for key, item in value.items()}
        case None | bool() | float():
            return value
        case Mapping():
            return {_text(str(key)): view_of(item, depth + 1) for key, item in value.items()}
        case list() | tuple() | AbstractSet():
            return [view_of(item, depth + 1) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return _duration(value)
        case UUID() | Decimal() | PurePath():
            return str(value)
        case bytes():
            return value.decode("latin-1")  # as long as the bytes are: a class may bound their number
    plain = unwrap(value)
    return f"<{type(value).__name__}>" if plain is value else view_of(plain, depth + 1)


def _text(value: str) -> str:
    """Return a text without what UTF-8 can't encode."""
    return value if value.isascii() else _SURROGATES.sub("\ufffd", value)


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
    schema = _adapt(json.loads(text), is_strict=is_strict)
    try:
        return jsonschema_rs.Draft202012Validator(schema)
    except ValueError as error:  # those of jsonschema-rs derive from it
        raise UsageError(f"the schema of a contract can't be used: {error!s:.300}") from error


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
            else [_adapt(item, is_strict=is_strict) for item in inner]
            if keyword in _SCHEMAS_IN_LISTS
            else {name: _adapt(value, is_strict=is_strict) for name, value in inner.items()}
            if keyword in _SCHEMAS_IN_MAPS
            else inner
        )
        for keyword, inner in part.items()
        if keyword != "pattern"  # it can be slow on hostile texts: the contract's class checks it
    }
    if "contentEncoding" in made:  # of bytes: lengths are those of the encoded text, and the class checks them
        made.pop("minLength", None)
        made.pop("maxLength", None)
    fields: Any = made.get("properties", {})
    if is_strict:
        if "properties" in made:
            made.setdefault("additionalProperties", False)
    else:
        if made.get("additionalProperties") is False:
            del made["additionalProperties"]
        if "required" in made:
            made["required"] = [name for name in made["required"] if not has_default(fields.get(name))]
    if "required" in made:
        # On its own: beside a schema of additional properties, jsonschema-rs 0.44 ignores two required names.
        made["allOf"] = [{"required": made.pop("required")}]
    return made
