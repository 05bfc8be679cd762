"""One event loop for all blocking calls of an object whose framework is async."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.errors import UsageError

T = TypeVar("T")


class LoopRunner:
    """Runs coroutines in one event loop: connections of a model live in it. Closed with the owner.

    Calls of several threads wait for each other.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._lock = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if _is_in_loop():
            coroutine.close()
            raise UsageError(
                "a blocking entry point was called within an event loop, which it would stop. Use the one that is "
                "awaited: `await agent.run(...)`, for example. Nothing was done"
            )
        with self._lock:
            if self._runner is None:
                self._runner = asyncio.Runner()
                weakref.finalize(self, _close, self._runner)
            return self._runner.run(coroutine)


def _close(runner: asyncio.Runner) -> None:
    """Close an event loop, also where garbage is collected while another loop is running."""
    if not _is_in_loop():
        runner.close()
        return
    thread = threading.Thread(target=runner.close)
    thread.start()
    thread.join()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
