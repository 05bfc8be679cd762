"""Base class of bridges that wrap another one, and change what passes through some of its verbs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from holdfast.backends.bridge.base import Bridge
from holdfast.backends.port import (
    BlobInfo,
    Capabilities,
    Finding,
    SegmentInfo,
    Usage,
)
from holdfast.backends.process_lock import ProcessLock

T = TypeVar("T")


class WrappingBridge(Bridge):
    """A bridge over another one: what it does not define itself, the inner bridge carries out."""

    def __init__(self, inner: Bridge) -> None:  # no `super().__init__`: the inner bridge has the state
        self._inner = inner

    @property
    def inner(self) -> Bridge:
        return self._inner

    @property
    def backend(self) -> Any:
        raise AttributeError("the backend below a wrapping bridge is `inner.backend`: it bypasses this one")

    @property
    def committed(self) -> int:  # type: ignore[override]  # as `backend`
        return self._inner.committed

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    async def _ready(self) -> None:
        """Prepare for the first verb that reads or writes."""

    def lock(self, key: bytes) -> AbstractAsyncContextManager[object]:
        return self._inner.lock(key)

    def fair_lock(self, key: bytes, seconds: float) -> AbstractAsyncContextManager[bool]:
        return self._inner.fair_lock(key, seconds)

    def process_lock(self, seconds: float, waited: float) -> ProcessLock:
        return self._inner.process_lock(seconds, waited)

    async def run_on_store_thread(self, call: Callable[[], T]) -> T:
        return await self._inner.run_on_store_thread(call)

    async def run_in_thread(self, call: Callable[[], T]) -> T:
        return await self._inner.run_in_thread(call)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    def wait_for_commit(self, seen: int, seconds: float) -> Awaitable[bool]:
        return self._inner.wait_for_commit(seen, seconds)

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        await self._ready()
        return await self._inner.find_ids(ending, limit)

    async def last_change(self) -> int:
        await self._ready()
        return await self._inner.last_change()

    async def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        await self._ready()
        return await self._inner.page_segments(after, limit)

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        await self._ready()
        return await self._inner.page_blobs(after, limit)

    async def usage(self) -> Usage:
        await self._ready()
        return await self._inner.usage()

    async def find_damage(self) -> list[str]:
        return await self._inner.find_damage()

    async def examine(self) -> list[Finding]:
        return await self._inner.examine()

    async def why_undecided(self) -> str | None:
        return await self._inner.why_undecided()

    async def compact(self) -> None:
        await self._ready()
        await self._inner.compact()

    def get_ready(self) -> None:
        self._inner.get_ready()

    def ask_to_collect(self, collect: Callable[[], None]) -> None:
        self._inner.ask_to_collect(collect)

    async def take_turn_to_collect(self) -> bool:
        return await self._inner.take_turn_to_collect()

    async def was_collected(self) -> None:
        await self._inner.was_collected()

    async def close(self) -> None:
        await self._inner.close()
