"""Bridges: one way to await a store, whether there is an event loop or not.

Operations are coroutines that await the port and nothing else. Which bridge answers them is all that tells the clients
apart:

- `Inline` (`inline.py`), on the caller's thread and on the spot. So a coroutine never suspends, and `run_inline`
  (`stepping.py`) steps it without an event loop: that is the whole of the sync client;
- `Offload` (`offload.py`), from one daemon thread, so an event loop is never blocked: that is the async client;
- `Direct` (`direct.py`), in the caller's own event loop, where the backend's verbs are coroutines.

The backend of the first two is the same object, and with each of the three commits that arrive together are committed
together. This module holds what is the same in all of them; `loop_bridge.py` what is the same in the last two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from holdfast.backends.port import (
    AtOnce,
    Backend,
    BlobInfo,
    Capabilities,
    Change,
    Commit,
    Record,
    Row,
    RowKey,
    Run,
    RunInfo,
    Span,
    Usage,
)

T = TypeVar("T")


class Bridge:
    """The awaitable port over a backend; how a call is carried out is the subclass's."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.committed = 0  # batches; changed by whoever commits, and only one does at a time
        self._is_closed = False

    @property
    def capabilities(self) -> Capabilities:
        capabilities: Capabilities = self.backend.capabilities
        return capabilities

    async def _call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        raise NotImplementedError

    def commit(self, commit: Commit) -> Awaitable[None]:
        raise NotImplementedError

    def turn(self, key: bytes) -> AbstractAsyncContextManager[object]:
        raise NotImplementedError

    async def aside(self, call: Callable[[], T]) -> T:
        return await self._call(call)

    async def apart(self, call: Callable[[], T]) -> T:
        return call()

    async def together(
        self,
        read: Callable[[Backend], Coroutine[Any, Any, T]],
        beside: Callable[[T], Iterator[None]] | None = None,  # noqa: ARG002 - there is no thread to do it
    ) -> T:
        return await read(self)

    @property
    def at_once(self) -> AtOnce | None:
        return None

    @property
    def is_idle(self) -> bool:
        return False

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def wait_for_commit(self, seen: int, seconds: float) -> Awaitable[bool]:
        raise NotImplementedError

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        return await self._call(self.backend.records, ids)

    async def record_and_runs(self, id_: bytes) -> tuple[Record | None, Mapping[Span, list[Run]]]:
        ask = getattr(self.backend, "record_and_runs", None)
        if ask is not None:
            both: tuple[Record | None, Mapping[Span, list[Run]]] = await self._call(ask, id_)
            return both
        [found] = await self.records([id_])
        return found, {}

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]:
        return await self._call(self.backend.session_records, session, before=before, limit=limit)

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        return await self._call(self.backend.find_ids, ending, limit)

    async def runs(self, spans: Sequence[Span]) -> list[list[Run]]:
        return await self._call(self.backend.runs, spans)

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        return await self._call(self.backend.blobs, hashes)

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        return await self._call(self.backend.rows, keys)

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        return await self._call(self.backend.scan, space, tree=tree, prefix=prefix, after=after, limit=limit)

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        return await self._call(self.backend.page_records, after, limit)

    async def changes(self, after: int, limit: int) -> list[Change]:
        return await self._call(self.backend.changes, after, limit)

    async def last_change(self) -> int:
        return await self._call(self.backend.last_change)

    async def page_runs(self, after: tuple[int, int] | None, limit: int) -> list[RunInfo]:
        return await self._call(self.backend.page_runs, after, limit)

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        return await self._call(self.backend.page_blobs, after, limit)

    async def usage(self) -> Usage:
        return await self._call(self.backend.usage)

    async def compact(self) -> None:
        await self._call(self.backend.compact)

    def get_ready(self) -> None:
        """Does ahead, without making anybody wait, what the first calls would otherwise wait for."""

    def ask_to_collect(self, collect: Callable[[], None]) -> None:
        """Has the store call that method when it may be time to collect, if it can tell (`AsyncBackend`)."""
        ask = getattr(self.backend, "ask_to_collect", None)
        if ask is not None:
            ask(collect)

    async def take_turn_to_collect(self) -> bool:
        return await self._call(self.backend.take_turn_to_collect)

    async def was_collected(self) -> None:
        await self._call(self.backend.was_collected)

    async def close(self) -> None:
        self._is_closed = True  # first: who is told by the store that it was closed asks here whether by its owner
        try:
            await self._call(self.backend.close)
        finally:
            self._tell()

    def _tell(self) -> None:
        """Wakes who waits for a commit."""
        raise NotImplementedError
