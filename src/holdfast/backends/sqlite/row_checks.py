"""Checks of rows that SQLite returns.

In damaged pages SQLite accepts values of other types, and rows in another order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

MALFORMED = "malformed row: a value is not of the type that was stored"
FIRST = itemgetter(0)


def check_types(row: tuple[Any, ...], types: tuple[type, ...]) -> tuple[Any, ...]:
    """Return the row if its values are of the types that were stored."""
    if tuple(map(type, row)) != types:
        raise sqlite3.DatabaseError(MALFORMED)
    return row


def check_order(
    rows: Iterable[tuple[Any, ...]], place: Callable[[tuple[Any, ...]], Any], after: Any
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as long as each is greater than the one before.

    In a damaged table the same page may come again and again, and reading page by page would never
    end.
    """
    for row in rows:
        at = place(row)
        if at <= after:
            raise sqlite3.DatabaseError("malformed table: its rows are not in order")
        after = at
        yield row
