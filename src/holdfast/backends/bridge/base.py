"""Base class of the bridges: one awaitable port over a store, with an event loop or without one.

Operations are coroutines that await the port and nothing else. The clients differ only in their
bridge:

- `InlineBridge` (`inline.py`) answers on the caller's thread. So a coroutine never suspends, and
  `run_inline` (`step.py`) steps it without an event loop: that is the sync client;
- `ThreadBridge` (`worker_thread.py`) answers from one daemon thread, so that no event loop is
  blocked: that is the async client;
- `AsyncBridge` (`event_loop.py`) awaits a backend whose verbs are coroutines, in the caller's own
  event loop.

The first two take the same blocking backend. All three commit together what arrives together.
`asyncio_base.py` holds the code that the last two share.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from holdfast.backends.port import (
    Backend,
    BlobInfo,
    Capabilities,
    Change,
    Commit,
    Finding,
    Record,
    Row,
    RowKey,
    Segment,
    SegmentInfo,
    Span,
    Usage,
)
from holdfast.backends.process_lock import ProcessLock

T = TypeVar("T")


class Bridge:
    """The awaitable port over a backend; the subclass decides how a call is carried out."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.committed = 0  # number of batches; only one committer at a time changes it
        self._is_closed = False

    @property
    def capabilities(self) -> Capabilities:
        capabilities: Capabilities = self.backend.capabilities
        return capabilities

    @property
    def inner(self) -> Bridge:
        """Return the bridge that reaches the backend: this one, unless it wraps another."""
        return self

    def rewrap(self, inner: Bridge) -> Bridge:
        """Return what this bridge makes of its backend, over another bridge to the same one."""
        return inner

    def address(self, hash_: bytes) -> bytes:
        """Return the address of a blob, by which `page_blobs` lists it and `delete_blobs` deletes it."""
        return hash_

    async def _call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        raise NotImplementedError  # each bridge has its own

    def commit(self, commit: Commit) -> Awaitable[None]:
        raise NotImplementedError  # each bridge has its own

    def lock(self, key: bytes) -> AbstractAsyncContextManager[object]:
        raise NotImplementedError  # each bridge has its own

    def fair_lock(self, key: bytes, seconds: float) -> AbstractAsyncContextManager[bool]:
        raise NotImplementedError  # each bridge has its own

    def process_lock(self, seconds: float, waited: float) -> ProcessLock:
        return ProcessLock(self.capabilities.directory, seconds, waited, self.sleep)

    async def run_on_store_thread(self, call: Callable[[], T]) -> T:
        return await self._call(call)

    async def run_in_thread(self, call: Callable[[], T]) -> T:
        return call()

    async def batch_reads(self, read: Callable[[Backend], Coroutine[Any, Any, T]]) -> T:
        return await read(self)

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError  # each bridge has its own

    def wait_for_commit(self, seen: int, seconds: float) -> Awaitable[bool]:
        raise NotImplementedError  # each bridge has its own

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        return await self._call(self.backend.records, ids)

    async def record_and_segments(self, id_: bytes) -> tuple[Record | None, Mapping[Span, list[Segment]]]:
        ask = getattr(self.backend, "record_and_segments", None)
        if ask is not None:
            both: tuple[Record | None, Mapping[Span, list[Segment]]] = await self._call(ask, id_)
            return both
        [found] = await self.records([id_])
        return found, {}

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]:
        return await self._call(self.backend.session_records, session, before=before, limit=limit)

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        return await self._call(self.backend.find_ids, ending, limit)

    async def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        return await self._call(self.backend.segments, spans)

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

    async def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
        if feed is None:
            return await self._call(self.backend.changes, after, limit)
        return await self._call(self.backend.changes, after, limit, feed)

    async def recent(self, before: int | None, limit: int) -> list[Change]:
        return await self._call(self.backend.recent, before, limit)

    async def last_change(self) -> int:
        return await self._call(self.backend.last_change)

    async def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        return await self._call(self.backend.page_segments, after, limit)

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        return await self._call(self.backend.page_blobs, after, limit)

    async def usage(self) -> Usage:
        return await self._call(self.backend.usage)

    async def find_damage(self) -> list[str]:
        return await self._call_optional_verb("find_damage") or []

    async def examine(self) -> list[Finding]:
        return await self._call_optional_verb("examine") or []

    async def why_undecided(self) -> str | None:
        why: str | None = await self._call_optional_verb("why_undecided")
        return why

    async def _call_optional_verb(self, verb: str) -> Any:
        """Call an optional verb of the backend; return None if the backend lacks it."""
        method = getattr(self.backend, verb, None)
        return None if method is None else await self._call(method)

    async def compact(self) -> None:
        await self._call(self.backend.compact)

    def get_ready(self) -> None:
        """Warm up the connection in the background."""

    def ask_to_collect(self, collect: Callable[[], None]) -> None:
        """Register a callback for when gc may be due, if the store can tell (`AsyncBackend`)."""
        ask = getattr(self.backend, "ask_to_collect", None)
        if ask is not None:
            ask(collect)

    async def take_turn_to_collect(self) -> bool:
        return await self._call(self.backend.take_turn_to_collect)

    async def was_collected(self) -> None:
        await self._call(self.backend.was_collected)

    async def close(self) -> None:
        self._is_closed = True  # first: a caller that the store reports as closed asks here whether its owner closed it
        try:
            await self._call(self.backend.close)
        finally:
            self._notify_waiters()

    def _notify_waiters(self) -> None:
        """Wake the callers that wait for a commit."""
        raise NotImplementedError  # each bridge has its own
