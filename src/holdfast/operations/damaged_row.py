"""Damaged rows in a listing: the error of the first one, or all of them noted beside what can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import CorruptError

T = TypeVar("T")


def read_or_note(read: Callable[[], T], damaged: list[str] | None) -> T | None:
    """Return what `read` returns. Damage raises its error, or is added to `damaged` if that is given."""
    try:
        return read()
    except CorruptError as error:
        if damaged is None:
            raise
        damaged.append(str(error))
        return None
