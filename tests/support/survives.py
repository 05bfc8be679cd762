"""The mark `@survives("finished model calls", "are replayed")`: a row of a framework's page.

`tools/make_tables.py` makes the table "What survives a crash" of the marks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=Callable[..., object])


def survives(what: str, then: str) -> Callable[[T], T]:
    """Mark the test that shows what becomes of something in a crash."""
    assert what
    assert then
    return lambda test: test
