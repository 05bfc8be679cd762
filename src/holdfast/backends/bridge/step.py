"""Execution of a coroutine without an event loop: the sync client runs every operation so.

`base.py` explains why the coroutines never suspend.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
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


@contextmanager
def run_inline_context(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter and leave an async context manager that never suspends, without an event loop."""
    value = run_inline(manager.__aenter__())
    try:
        yield value
    except BaseException as error:
        if not run_inline(manager.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        run_inline(manager.__aexit__(None, None, None))
