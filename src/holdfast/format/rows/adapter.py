"""Declarations of an adapter's own rows, as plain data: gc, verify, export and import read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.backends.port import Row, RowKey


class IndexedRows(NamedTuple):
    """Rows of the store that may be written before the checkpoint that they belong to.

    Each row begins with its checkpoint, or names none. Then the index names it: rows of trees, one
    for each checkpoint.
    """

    space: str
    index_space: str
    index_key: Callable[[bytes], bytes]
    """The key in the index for the key of a row."""


class TimedRows(NamedTuple):
    """Rows of the store that gc removes once their time is over."""

    space: str
    is_expired: Callable[[RowKey, Row, int], bool]
    companions: tuple[str, ...] = ()
    """Spaces with a row of the same key that goes with it."""


class AdapterRows(NamedTuple):
    """All spaces of an adapter."""

    indexed: tuple[IndexedRows, ...] = ()
    timed: tuple[TimedRows, ...] = ()
    local: tuple[str, ...] = ()
    """Spaces of rows that stay in the store: verify reads them, export leaves them out."""

    @property
    def of_no_checkpoint(self) -> tuple[str, ...]:
        """Spaces of rows that belong to the store alone."""
        return (
            *(space for timed_rows in self.timed for space in (timed_rows.space, *timed_rows.companions)),
            *self.local,
        )
