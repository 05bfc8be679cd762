"""The fields of a row's content: a MessagePack list whose elements have known types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ormsgpack

from holdfast.backends.port import Row, RowKey
from holdfast.errors import CorruptError
from holdfast.format.rows import head

LARGEST = 2**63 - 1  # of a number: the next one fits a row, too
OPTIONAL_INT = (int, type(None))
OPTIONAL_STR = (str, type(None))
OPTIONAL_BYTES = (bytes, type(None))


def unpack_fields(key: RowKey, row: Row, types: Sequence[Any], *, at_least: bool = False) -> list[Any]:
    """Return the content of a row, a list of values of these types, or with `at_least` one that begins so."""
    try:
        fields = ormsgpack.unpackb(head.content(key, row))
    except ValueError as error:
        raise make_damage_error(key) from error
    check_fields(key, fields[: len(types)] if at_least and isinstance(fields, list) else fields, types)
    return list(fields)


def check_fields(key: RowKey, fields: Any, types: Sequence[Any]) -> None:
    """Raise an error unless the fields are a list of values of these types; a number is never negative."""
    is_list = isinstance(fields, list) and len(fields) == len(types)
    if not is_list or not all(map(_fits, fields, types)):
        raise make_damage_error(key)


def _fits(value: Any, type_: Any) -> bool:
    return isinstance(value, type_) and (not isinstance(value, int) or 0 <= value < LARGEST)


def unpack_name(key: RowKey, name: bytes) -> str:
    """Return a name that is part of a row."""
    try:
        return head.session_name(name)
    except UnicodeDecodeError as error:
        raise make_damage_error(key) from error


def make_damage_error(key: RowKey) -> CorruptError:
    return CorruptError(
        f"a {key.space} row of {key.key[:60]!r} can't be read: it was not written by holdfast. Run `verify`"
    )
