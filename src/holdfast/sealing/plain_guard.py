"""The guard of a client without keys: its first call refuses a sealed store, the others pass.

The store of the client's context is this guard until the first call has passed; then it is the bridge
itself, so a plain store costs one row more, once. The row is read with the first rows that are read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.backends.bridge.base import Bridge
from holdfast.backends.bridge.wrapper import WrappingBridge
from holdfast.backends.port import STORE, Backend, Change, Commit, Record, Row, RowKey, Segment, Span
from holdfast.errors import KeyMissingError

T = TypeVar("T")
MARKER = RowKey("keys", b"store", STORE)  # as in `store_keys.py`, which needs more


class Passage:
    """Whether the store was found to be a plain one, and what to do then."""

    def __init__(self) -> None:
        self.is_plain = False
        self.then: list[Callable[[], None]] = []

    def check(self, row: Row | None) -> None:
        """Raise `KeyMissingError` if there is a row of a store's key."""
        if row is not None:
            raise KeyMissingError(
                "this store is sealed, and no keys were given: nothing was read or changed. Open it with "
                "`keys=KeyRing.from_file(…)`; on the command line, set HOLDFAST_KEYS_FILE or HOLDFAST_KEYS"
            )
        self.is_plain = True
        for then in self.then:
            then()


class PlainGuard(WrappingBridge):
    """A bridge over another one that refuses a sealed store."""

    def __init__(self, inner: Bridge, passage: Passage | None = None) -> None:
        super().__init__(inner)
        self.passage = passage or Passage()

    def rewrap(self, inner: Bridge) -> Bridge:
        if inner is self._inner:
            return self
        return inner if self.passage.is_plain else PlainGuard(inner, self.passage)

    @property
    def backend(self) -> Any:
        return self._inner.backend

    async def _ready(self) -> None:
        if not self.passage.is_plain:
            [row] = await self._inner.rows([MARKER])
            self.passage.check(row)

    async def batch_reads(self, read: Callable[[Backend], Coroutine[Any, Any, T]]) -> T:
        return await self._inner.batch_reads(lambda inner: read(self.rewrap(inner)))  # type: ignore[arg-type]  # bridge

    def commit(self, commit: Commit) -> Awaitable[None]:
        return self._inner.commit(commit) if self.passage.is_plain else self._commit(commit)

    async def _commit(self, commit: Commit) -> None:
        await self._ready()
        await self._inner.commit(commit)

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        if self.passage.is_plain:
            return await self._inner.rows(keys)
        *found, marker = await self._inner.rows([*keys, MARKER])
        self.passage.check(marker)
        return found

    # What is sealed says so itself when it is read: only an empty answer is not believed.

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        found = await self._inner.records(ids)
        return found if any(found) else await self._check_answer(found)

    async def record_and_segments(self, id_: bytes) -> tuple[Record | None, Mapping[Span, list[Segment]]]:
        found = await self._inner.record_and_segments(id_)
        return found if found[0] is not None else await self._check_answer(found)

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]:
        found = await self._inner.session_records(session, before=before, limit=limit)
        return found or await self._check_answer(found)

    async def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        return await self._inner.segments(spans)

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        return await self._inner.blobs(hashes)

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        await self._ready()
        return await self._inner.scan(space, tree=tree, prefix=prefix, after=after, limit=limit)

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        found = await self._inner.page_records(after, limit)
        return found or await self._check_answer(found)

    async def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
        found = await self._inner.changes(after, limit, feed)
        return found or await self._check_answer(found)

    async def recent(self, before: int | None, limit: int) -> list[Change]:
        found = await self._inner.recent(before, limit)
        return found or await self._check_answer(found)

    async def _check_answer(self, answer: T) -> T:
        await self._ready()
        return answer
