"""Locks of the effects of one turn: equal calls wait for each other.

A model may repeat a call within one message, and sub-agents that run in parallel may make the same
one. The first call carries the effect out; the others then find its result in the ledger.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

_held: ContextVar[frozenset[tuple[str, str]]] = ContextVar("holdfast_effect_locks_held", default=frozenset())


class EffectLocks:
    """The locks of a turn by tool and key. `is_awaited` says whether its calls are coroutines of one loop."""

    def __init__(self, *, is_awaited: bool) -> None:
        self._make: Any = asyncio.Lock if is_awaited else threading.Lock
        self._locks: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def hold(self, tool: str, key: str | None) -> AsyncIterator[None]:
        """Hold the lock of an effect. A call without a key, or within that effect, does not wait."""
        held = _held.get()
        if key is None or (tool, key) in held:
            yield
            return
        with self._lock:
            lock = self._locks.setdefault((tool, key), self._make())
        acquired = lock.acquire()
        if asyncio.iscoroutine(acquired):
            await acquired
        try:
            token = _held.set(held | {(tool, key)})
            yield
            _held.reset(token)
        finally:
            lock.release()
