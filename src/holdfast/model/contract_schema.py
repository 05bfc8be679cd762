"""The JSON Schemas that contracts may use: which keywords, how large, and their canonical form.

A schema says what a value looks like that one agent hands to another. The subset is what can be
compared: `contract_compatibility` decides whether every value of one schema is a value of another.
Nothing in a schema is fetched or executed: references lead to definitions of the same schema only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from typing import Any

from holdfast.errors import UsageError

MOST_BYTES = 64 * 1024
DEEPEST = 64
LARGEST_NUMBER = 1e300
LARGEST_SIZE = 2**31  # of texts and lists
REFERENCE = "#/$defs/"
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "discriminator", "format", "contentEncoding"}
    | {"$schema"}
)
NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
SIZES = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
BOUNDS = NUMBERS | SIZES | {"uniqueItems", "pattern"}
_SCHEMAS = frozenset({"items", "additionalProperties"})  # keywords that hold a schema
_LISTS = frozenset({"prefixItems", "anyOf", "oneOf"})
_MAPS = frozenset({"properties", "$defs"})
_TEXTS = frozenset({"pattern", "format", "contentEncoding"})
_DEFINITION_NAME = re.compile(r"[A-Za-z0-9._-]+")  # in a reference, any other character could be escaped
KEYWORDS = ANNOTATIONS | BOUNDS | _SCHEMAS | _LISTS | _MAPS | {"type", "required", "enum", "const", "$ref"}

Schema = Mapping[str, Any]


def check_schema(schema: Any, name: str) -> dict[str, Any]:
    """Return a schema as plain JSON data; raise `UsageError` if a contract can't use it."""
    try:
        text = json.dumps(schema, allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the schema of contract {name!r:.60} is no JSON: {error}. Give a JSON Schema") from None
    if size > MOST_BYTES:
        raise UsageError(
            f"the schema of contract {name!r:.60} has {size:,} bytes; {MOST_BYTES:,} are allowed. Hand over less, "
            "or split it into several contracts"
        )
    plain = json.loads(text)
    if not isinstance(plain, dict):
        raise UsageError(f"the schema of contract {name!r:.60} is a {type(plain).__name__}: it must be an object")
    definitions = plain.get("$defs", {})
    for path, part, depth in walk_schema(plain):
        problem = _find_problem(part, depth, definitions)
        if problem is not None:
            raise UsageError(f"the schema of contract {name!r:.60} can't be used: at {path}, {problem}")
    endless = _find_endless_reference(definitions)
    if endless is not None:
        raise UsageError(f"the schema of contract {name!r:.60} can't be used: {endless!r:.80} leads back to itself")
    return plain


def walk_schema(schema: Any, path: str = "$", depth: int = 0) -> Iterator[tuple[str, Any, int]]:
    """Yield each schema within a schema with its path and depth, itself first."""
    yield path, schema, depth
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return
    for keyword in schema:
        inner = schema[keyword]
        if keyword in _SCHEMAS:
            yield from walk_schema(inner, f"{path}.{keyword}", depth + 1)
        elif keyword in _LISTS and isinstance(inner, list):
            for number, item in enumerate(inner):
                yield from walk_schema(item, f"{path}.{keyword}[{number}]", depth + 1)
        elif keyword in _MAPS and isinstance(inner, Mapping):
            for key, value in inner.items():
                yield from walk_schema(value, f"{path}.{keyword}.{key}", depth + 1)


def _find_problem(part: Any, depth: int, definitions: Any) -> str | None:
    """Return why a schema can't be used, in words; None if it can."""
    if depth > DEEPEST:
        return f"it is nested more than {DEEPEST} levels deep"
    if isinstance(part, bool):
        return None
    if not isinstance(part, Mapping):
        return f"there is a {type(part).__name__} where a schema must be"
    unknown = sorted(set(part) - KEYWORDS)
    if unknown:
        known = ", ".join(sorted(KEYWORDS))
        return f"the keyword {unknown[0]!r:.60} is not supported; a contract's schema may use {known}"
    wrong = next((name for name in _MAPS if name in part and not isinstance(part[name], Mapping)), None)
    if wrong is not None:
        return f"{wrong!r} must be an object"
    wrong = next((name for name in _LISTS if name in part and not (isinstance(part[name], list) and part[name])), None)
    if wrong is not None:
        return f"{wrong!r} must be a list that is not empty"
    alone = next((name for name in ("$ref", "anyOf", "oneOf") if name in part), None)
    others = sorted(set(part) - ANNOTATIONS - {"$defs", alone})
    if alone is not None and others:
        return f"{others[0]!r} stands beside {alone!r}: put it into the alternatives"
    return _find_type_problem(part) or _find_reference_problem(part, definitions)


def _find_type_problem(part: Schema) -> str | None:
    types = types_of(part)
    if types is None or not set(types) <= set(TYPES):
        return f"'type' is {part.get('type')!r:.60}: it must be one of {', '.join(TYPES)}, or a list of them"
    if len(set(types)) < len(types):
        return f"'type' is {part['type']!r:.60}: it names a type twice"
    if "enum" in part and not (isinstance(part["enum"], list) and part["enum"]):
        return "'enum' must be a list that is not empty"
    required = part.get("required", [])
    if not isinstance(required, list) or not all(isinstance(item, str) for item in required):
        return "'required' must be a list of names"
    if len(set(required)) < len(required):
        return "'required' names a field twice"
    wrong = next((name for name in sorted(_TEXTS) if not isinstance(part.get(name, ""), str)), None)
    if wrong is not None:
        return f"{wrong!r} is {part[wrong]!r:.60}: it must be a text"
    if not isinstance(part.get("uniqueItems", False), bool):
        return f"'uniqueItems' is {part['uniqueItems']!r:.60}: it must be true or false"
    return _find_bound_problem(part)


def _find_bound_problem(part: Schema) -> str | None:
    for bound in sorted((NUMBERS | SIZES) & set(part)):
        value = part[bound]
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST_NUMBER:
            return f"{bound!r} is {value!r:.60}: it must be a number of at most {LARGEST_NUMBER:g}"
        if bound in SIZES and not (value == int(value) and 0 <= value <= LARGEST_SIZE):
            return f"{bound!r} is {value!r:.60}: it must be a whole number from 0 to {LARGEST_SIZE}"
        if bound == "multipleOf" and value <= 0:
            return f"'multipleOf' is {value!r:.60}: it must be above 0"
    return None


def _find_reference_problem(part: Schema, definitions: Any) -> str | None:
    if "$ref" not in part:
        return None
    reference = part["$ref"]
    if not isinstance(reference, str) or not reference.startswith(REFERENCE):
        return f"the reference {reference!r:.80} leads out of the schema: only {REFERENCE}NAME is followed"
    name = reference.removeprefix(REFERENCE)
    if not isinstance(definitions, Mapping) or name not in definitions:
        return f"the reference {reference!r:.80} has no definition in $defs"
    if not _DEFINITION_NAME.fullmatch(name):
        return (
            f"the reference {reference!r:.80} has other characters than letters, digits, '.', '_' and '-' in its name"
        )
    return None


def _find_endless_reference(definitions: Mapping[str, Any]) -> str | None:
    """Return a definition that leads to itself with no field or element in between, if there is one."""
    graph = {name: set(_alternatives_of(part)) for name, part in definitions.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return f"{REFERENCE}{error.args[1][0]}"
    return None


def _alternatives_of(part: Any) -> Iterator[str]:
    """Yield the definitions whose values are those of a schema, too: by reference, or as alternatives."""
    if isinstance(part, Mapping):
        if "$ref" in part:
            yield part["$ref"].removeprefix(REFERENCE)
        for item in (*part.get("anyOf", ()), *part.get("oneOf", ())):
            yield from _alternatives_of(item)


def resolve_reference(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return the schema that a reference leads to; any other schema is returned as it is."""
    while isinstance(schema, Mapping) and "$ref" in schema:
        schema = definitions.get(str(schema["$ref"]).removeprefix(REFERENCE), False)
    return schema


def has_default(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "default" in schema


def fill_defaults(schema: Any, value: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a value with the default of each missing field that has one; alternatives are left alone."""
    schema = resolve_reference(schema, definitions)
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, Mapping):
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        filled = {name: fill_defaults(fields.get(name, others), item, definitions) for name, item in value.items()}
        missing = {name: item for name, item in fields.items() if name not in filled and has_default(item)}
        return filled | {name: deepcopy(item["default"]) for name, item in missing.items()}
    if type(value) in (list, tuple):
        return type(value)(fill_defaults(item_at(schema, at), item, definitions) for at, item in enumerate(value))
    return value


def item_at(schema: Schema, place: int) -> Any:
    """Return the schema of the element at a place of a list."""
    fixed = schema.get("prefixItems", ())
    return fixed[place] if place < len(fixed) else schema.get("items", True)


def types_of(part: Schema) -> tuple[str, ...] | None:
    """Return the types that a schema allows, all if it names none; None if it names them wrongly."""
    given = part.get("type", list(TYPES))
    if isinstance(given, str):
        return (given,)
    if isinstance(given, list) and given and all(isinstance(item, str) for item in given):
        return tuple(given)
    return None


def hash_schema(schema: Schema) -> bytes:
    """Return the SHA-256 of a schema's canonical form: keys sorted, without titles and descriptions."""
    return hashlib.sha256(canonical_text(schema).encode()).digest()


def canonical_text(schema: Schema) -> str:
    """Return a schema as text that is equal for equal meanings: prose and the order of keys do not count."""
    return json.dumps(_without_prose(schema), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _without_prose(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    kept: dict[str, Any] = {}
    for keyword, inner in part.items():
        if keyword in ("title", "description", "examples", "deprecated", "$schema"):
            continue
        if keyword in _SCHEMAS:
            kept[keyword] = _without_prose(inner)
        elif keyword in _LISTS:
            kept[keyword] = [_without_prose(item) for item in inner]
        elif keyword in _MAPS:
            kept[keyword] = {key: _without_prose(value) for key, value in inner.items()}
        else:
            kept[keyword] = sorted(inner) if keyword == "required" else inner
    return kept


MOST_DIFFERENCES = 5


def find_differences(old: Any, new: Any, path: str = "$") -> tuple[str, ...]:
    """Return the first places at which two schemas differ, each with the old and the new value."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found: list[str] = []
        for name in sorted({*old, *new}):
            if len(found) < MOST_DIFFERENCES:
                found += find_differences(old.get(name), new.get(name), f"{path}.{name:.60}")
        return tuple(found[:MOST_DIFFERENCES])
    return () if old == new else (f"{path}: {old!r:.60}, here {new!r:.60}",)
