"""One event loop for all blocking calls of an object whose framework is async."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopRunner:
    """Runs coroutines in one event loop: connections of a model live in it. Closed with the owner."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
            weakref.finalize(self, _close, self._runner)
        return self._runner.run(coroutine)


def _close(runner: asyncio.Runner) -> None:
    """Close an event loop, also where garbage is collected while another loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        runner.close()
        return
    thread = threading.Thread(target=runner.close)
    thread.start()
    thread.join()
