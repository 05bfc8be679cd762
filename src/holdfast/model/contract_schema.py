"""The JSON Schemas that contracts may use: which keywords, how large, and their canonical form.

A schema says what a value looks like that one agent hands to another. The subset is what can be
compared: `contract_compatibility` decides whether every value of one schema is a value of another.
Nothing in a schema is fetched or executed: references lead to definitions of the same schema only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.errors import UsageError

MOST_BYTES = 64 * 1024
DEEPEST = 64
REFERENCE = "#/$defs/"
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "discriminator", "format", "$schema"}
)
BOUNDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"}
    | {"minItems", "maxItems", "uniqueItems", "pattern"}
)
_ONE = frozenset({"items", "additionalProperties"})  # keywords that hold a schema
_LISTS = frozenset({"prefixItems", "anyOf", "oneOf"})
_MAPS = frozenset({"properties", "$defs"})
KEYWORDS = ANNOTATIONS | BOUNDS | _ONE | _LISTS | _MAPS | {"type", "required", "enum", "const", "$ref"}

Schema = Mapping[str, Any]


def check_schema(schema: Any, name: str) -> dict[str, Any]:
    """Return a schema as plain JSON data; raise `UsageError` if a contract can't use it."""
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the schema of contract {name!r:.60} is no JSON: {error}. Give a JSON Schema") from None
    if len(text) > MOST_BYTES:
        raise UsageError(
            f"the schema of contract {name!r:.60} has {len(text):,} bytes; {MOST_BYTES:,} are allowed. Hand over less, "
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
    return plain


def walk_schema(schema: Any, path: str = "$", depth: int = 0) -> Iterator[tuple[str, Any, int]]:
    """Yield each schema within a schema with its path and depth, itself first."""
    yield path, schema, depth
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return
    for keyword in schema:
        inner = schema[keyword]
        if keyword in _ONE:
            yield from walk_schema(inner, f"{path}.{keyword}", depth + 1)
        elif keyword in _LISTS and isinstance(inner, list):
            for number, one in enumerate(inner):
                yield from walk_schema(one, f"{path}.{keyword}[{number}]", depth + 1)
        elif keyword in _MAPS and isinstance(inner, Mapping):
            for key, one in inner.items():
                yield from walk_schema(one, f"{path}.{keyword}.{key}", depth + 1)


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
    beside = sorted(set(part) - ANNOTATIONS - {"$defs", alone})
    if alone is not None and beside:
        return f"{beside[0]!r} stands beside {alone!r}: put it into the alternatives"
    return _find_type_problem(part) or _find_reference_problem(part, definitions)


def _find_type_problem(part: Schema) -> str | None:
    types = types_of(part)
    if types is None or not set(types) <= set(TYPES):
        return f"'type' is {part.get('type')!r:.60}: it must be one of {', '.join(TYPES)}, or a list of them"
    if "enum" in part and not (isinstance(part["enum"], list) and part["enum"]):
        return "'enum' must be a list that is not empty"
    required = part.get("required", [])
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        return "'required' must be a list of names"
    for bound in BOUNDS - {"uniqueItems", "pattern"}:
        value = part.get(bound, 0)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or (bound == "multipleOf" and part.get(bound) == 0)
        ):
            return f"{bound!r} is {value!r:.60}: it must be a number"
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
    seen = {name}
    target = definitions[name]
    while isinstance(target, Mapping) and "$ref" in target:  # a chain of references must end somewhere
        following = str(target["$ref"]).removeprefix(REFERENCE)
        if following in seen or following not in definitions:
            return f"the reference {reference!r:.80} leads back to itself"
        seen.add(following)
        target = definitions[following]
    return None


def resolve_reference(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return the schema that a reference leads to; any other schema is returned as it is."""
    while isinstance(schema, Mapping) and "$ref" in schema:
        schema = definitions.get(str(schema["$ref"]).removeprefix(REFERENCE), False)
    return schema


def types_of(part: Schema) -> tuple[str, ...] | None:
    """Return the types that a schema allows, all if it names none; None if it names them wrongly."""
    given = part.get("type", list(TYPES))
    if isinstance(given, str):
        return (given,)
    if isinstance(given, list) and given and all(isinstance(one, str) for one in given):
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
        if keyword in _ONE:
            kept[keyword] = _without_prose(inner)
        elif keyword in _LISTS:
            kept[keyword] = [_without_prose(one) for one in inner]
        elif keyword in _MAPS:
            kept[keyword] = {key: _without_prose(one) for key, one in inner.items()}
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
