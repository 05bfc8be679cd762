"""Nested data classes: those in the field annotations of a registered class."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

from holdfast.codec.unsupported import has_fields


def classes_in_fields(cls: type[Any]) -> Iterator[type[Any]]:
    """Yield the data classes in the annotations of its fields, also within `list[...]` and the like."""
    for annotation in _annotations(cls):
        yield from _classes_in(annotation)


def _annotations(cls: type[Any]) -> list[Any]:
    if issubclass(cls, Enum):
        return []
    fields = getattr(cls, "__pydantic_fields__", None)
    if fields is not None:  # pydantic has resolved the annotations that are strings
        return [field.annotation for field in fields.values()]
    try:
        # With the class itself, whose name is not in its module yet where `register` decorates it.
        names = {**vars(cls), cls.__name__: cls}
        return [*typing.get_type_hints(cls, localns=names, include_extras=True).values()]
    except Exception:  # of any kind: a name that does not exist yet, or only for a type checker
        return [*vars(cls).get("__annotations__", {}).values()]


def _classes_in(annotation: Any) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        if has_fields(annotation) or issubclass(annotation, Enum):
            yield annotation
        return
    for part in typing.get_args(annotation):
        yield from _classes_in(part)
