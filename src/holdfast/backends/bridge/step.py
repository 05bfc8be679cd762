"""Execution of a coroutine without an event loop: the sync client runs every operation so.

`base.py` explains why the coroutines never suspend.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_inline(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # StopIteration.value is untyped
    coroutine.close()
    raise RuntimeError("an operation awaited something other than the port: it can't run without an event loop")
