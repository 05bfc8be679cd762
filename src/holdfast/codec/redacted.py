"""Redacted values: typed references that stand where a value was left out.

A reference says which type the value had, which rule left it out and, if the rule has one, the name
by which the program finds the value again. It holds nothing that was made from the value: a hash of
a short secret can be guessed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import ormsgpack

from holdfast.errors import CorruptError, SecretUnavailableError

_VERSION = 1
_DROPPED = "drop"  # the only outcome that leaves a trace; a reader keeps others as they are
REDACTED_ATTRIBUTE: Final = "_holdfast_redacted"  # of objects of a library's own type that stand for a reference


class RedactedValue:
    """A value that was not stored: its type, and the rule that left it out.

    `name` is what the rule calls the value, for instance the environment variable that has it.
    """

    __slots__ = ("name", "rule", "type")

    def __init__(self, type: str, rule: str, name: str | None = None) -> None:  # noqa: A002 - what it is
        self.type = type
        self.rule = rule
        self.name = name

    def get_secret_value(self) -> NoReturn:
        """Raise `SecretUnavailableError`: the store does not have the value."""
        named = f" It is called {self.name!r}." if self.name is not None else ""
        raise SecretUnavailableError(
            f"this {self.short_type} was left out when the state was saved, by the rule {self.rule!r}: the store "
            f"does not have it.{named} Set it again from where the program has it"
        )

    @property
    def short_type(self) -> str:
        """Return the type's name without its module."""
        return self.type.rpartition(".")[2]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RedactedValue):
            return NotImplemented
        return (self.type, self.rule, self.name) == (other.type, other.rule, other.name)

    def __hash__(self) -> int:
        return hash((self.type, self.rule, self.name))

    def __repr__(self) -> str:
        return f"<redacted {self.short_type}>"

    __str__ = __repr__


def reference_of(value: Any) -> RedactedValue:
    """Return the reference that a value is, or stands for."""
    return value if type(value) is RedactedValue else getattr(value, REDACTED_ATTRIBUTE)


def is_redacted(value: Any) -> bool:
    """Return whether this is a reference that stands where a value was left out."""
    return type(value) is RedactedValue or hasattr(type(value), REDACTED_ATTRIBUTE)


def has_redacted(value: Any) -> bool:
    """Return whether a value has such a reference at any depth of dicts and lists."""
    if isinstance(value, Mapping):
        return any(map(has_redacted, value.values()))
    return any(map(has_redacted, value)) if isinstance(value, list | tuple) else is_redacted(value)


def encode_redacted(value: Any) -> bytes:
    reference = reference_of(value)
    return ormsgpack.packb([_VERSION, _DROPPED, reference.rule, reference.name, reference.type])


def decode_redacted(payload: bytes) -> Any:
    """Return the reference; where pydantic is loaded, that of a secret is a secret of pydantic's, too."""
    fields = ormsgpack.unpackb(payload)
    if type(fields) is not list or len(fields) < 5 or fields[0] != _VERSION:
        raise CorruptError("A stored reference to a redacted value is damaged")
    rule, name, type_ = fields[2:5]
    if type(rule) is not str or type(type_) is not str or type(name) not in (str, type(None)):
        raise CorruptError("A stored reference to a redacted value is damaged: its parts are no texts")
    reference = RedactedValue(type_, rule, name)
    if "pydantic" in sys.modules:
        from holdfast.codec.redacted_secret import as_secret

        return as_secret(reference)
    return reference


def full_name(cls: type[Any]) -> str:
    """Return a class's name with its module; without it for a builtin class."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
