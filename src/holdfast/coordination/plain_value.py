"""Plain data of what contracts hand over: models, dataclasses, structs, enums, named tuples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

from holdfast.errors import UsageError

DEEPEST_VALUE = 200
_PLAIN = frozenset({str, int, float, bool, type(None), bytes})


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return a value with all instances as plain data, by the names that their schemas have."""
    if type(value) in _PLAIN:
        return value
    if depth > DEEPEST_VALUE:
        raise too_deep()
    if isinstance(value, Mapping):
        return {key: plain_value(item, depth + 1) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain_value(item, depth + 1) for item in value)
    plain = unwrap(value)
    return value if plain is value else plain_value(plain, depth + 1)


def unwrap(value: Any) -> Any:
    """Return an instance as plain data, one level deep; any other value is returned as it is."""
    type_ = type(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return value if type_ is tuple else tuple(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(type_, "model_fields"):
        return _fields_of_model(value)
    if hasattr(type_, "__struct_fields__"):
        return _fields_of_struct(value)
    return value


def too_deep() -> UsageError:
    return UsageError(
        f"a value that is handed over is nested more than {DEEPEST_VALUE} levels deep, or contains itself"
    )


def _fields_of_model(value: Any) -> Any:
    """Return the fields of a pydantic model by their aliases, with the extra ones that it allows."""
    type_ = type(value)
    if getattr(type_, "__pydantic_root_model__", False):
        return value.root
    named = {_alias(name, field): getattr(value, name) for name, field in type_.model_fields.items()}
    return named | (value.model_extra or {})


def _alias(name: str, field: Any) -> str:
    alias = field.validation_alias
    first = next(iter(getattr(alias, "choices", ())), alias)
    return first if isinstance(first, str) else name


def _fields_of_struct(value: Any) -> Any:
    """Return the fields of a struct of msgspec as it encodes them: renamed, tagged, or as a list."""
    type_ = type(value)
    names, config = type_.__struct_fields__, type_.__struct_config__
    encoded = dict(zip(type_.__struct_encode_fields__, (getattr(value, name) for name in names), strict=True))
    tag = {} if config.tag is None else {config.tag_field: config.tag}
    fields = {**tag, **encoded}
    return list(fields.values()) if config.array_like else fields
