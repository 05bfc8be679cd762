"""References that are secrets of pydantic's, without a value: for `SecretStr` fields of models.

Only imported where pydantic is loaded already.
"""

from __future__ import annotations

from typing import Any, NoReturn

import pydantic

from holdfast.codec.redacted import RedactedValue


class _WithoutValue:
    """What a secret does that has no value."""

    _holdfast_redacted: RedactedValue

    def __init__(self, reference: RedactedValue) -> None:
        self._holdfast_redacted = reference

    def get_secret_value(self) -> NoReturn:
        self._holdfast_redacted.get_secret_value()

    def _display(self) -> str:
        return repr(self._holdfast_redacted)

    __str__ = _display
    __repr__ = _display

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WithoutValue) and other._holdfast_redacted == self._holdfast_redacted

    def __hash__(self) -> int:
        return hash(self._holdfast_redacted)


def _class_of(base: type[Any]) -> type[Any]:
    # The attribute tells `is_redacted` the class.
    return type(f"Redacted{base.__name__}", (_WithoutValue, base), {"_holdfast_redacted": None})


_CLASSES = {f"pydantic.types.{base.__name__}": _class_of(base) for base in (pydantic.SecretStr, pydantic.SecretBytes)}


def as_secret(reference: RedactedValue) -> Any:
    """Return a reference to a secret of pydantic's as such a secret; any other as it is."""
    cls = _CLASSES.get(reference.type) or _CLASSES.get(reference.rule.removeprefix("type "))
    return reference if cls is None else cls(reference)
