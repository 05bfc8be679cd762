"""Operations of a LangGraph store over holdfast's port: get, search, put, list.

Items are rows of the store. The order of a search without a query is that in which items were
created, namespace by namespace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

from holdfast.adapters.langgraph import item_rows, row_keys, vectors
from holdfast.adapters.langgraph.handle import SECONDS_IN_A_MINUTE
from holdfast.adapters.langgraph.item_filter import has_all, is_named
from holdfast.adapters.langgraph.item_rows import StoredItem
from holdfast.adapters.langgraph.vectors import Embedder, VectorIndex
from holdfast.backends.port import ABSENT, STORE, Commit, CommitConflict, Row, RowKey, RowWrite
from holdfast.errors import UsageError
from holdfast.format import frame
from holdfast.operations.context import StoreContext

MAX_ATTEMPTS = 20
PAGE = 200
NAMESPACE_PAGE = 16
_MICROSECONDS = 1_000_000
ItemKey = tuple[tuple[str, ...], str]


class ItemMatch(NamedTuple):
    """An item that is there, with the row that has it."""

    namespace: tuple[str, ...]
    name: str
    key: RowKey
    row: Row
    item: StoredItem


class Moments:
    """A clock that rises: of two items of one process, the later has the later time."""

    def __init__(self) -> None:
        self._last = 0

    def take(self, now_us: int) -> int:
        self._last = max(now_us, self._last + 1)
        return self._last


@dataclass(slots=True)
class Items:
    ctx: StoreContext
    index: VectorIndex | None
    embedder: Embedder | None
    moments: Moments = field(default_factory=Moments)

    async def carry_out(self, ops: Iterable[Op]) -> list[Result]:
        """Return the result of each operation.

        All reads see the store as it was before the puts. Of several puts to one item the last one
        counts. The puts are one commit.
        """
        results: list[Result] = []
        puts: dict[ItemKey, PutOp] = {}
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, GetOp):
                results.append(await self._get(op))
            elif isinstance(op, SearchOp):
                results.append(await self._search(op))
            elif isinstance(op, ListNamespacesOp):
                results.append(await self._list_namespaces(op))
            elif isinstance(op, PutOp):
                puts[op.namespace, op.key] = op
                results.append(None)
            else:
                raise UsageError(f"unknown operation of a store: {type(op).__name__}")
        if puts:
            await self._put(puts)
        return results

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _get(self, op: GetOp) -> Item | None:
        key = item_rows.item_row(row_keys.item_key(op.namespace, op.key))
        [row] = await self.ctx.backend.rows([key])
        if row is None:
            return None
        stored = item_rows.unpack_item(key, row)
        if stored.is_expired(self.ctx.now_us()):
            return None
        if op.refresh_ttl:
            await self._refresh([ItemMatch(op.namespace, op.key, key, row, stored)])
        return Item(
            value=self._value(stored),
            key=op.key,
            namespace=op.namespace,
            created_at=_moment(stored.created_at_us),
            updated_at=_moment(stored.updated_at_us),
        )

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        candidates = _sort([found async for found in self._iterate_below(op.namespace_prefix)])
        wanted = range(op.offset, op.offset + op.limit)
        taken: list[tuple[ItemMatch, Any, float | None]] = []
        if op.query and self.embedder is not None:
            matching = [(found, value) for found in candidates if has_all(value := self._value(found.item), op.filter)]
            ranked = await self._rank(matching, op.namespace_prefix, op.query, self.embedder)
            taken = ranked[wanted.start : wanted.stop]
        else:
            position = 0
            for found in candidates:  # decode no more values than needed
                if position >= wanted.stop:
                    break
                value = self._value(found.item)
                if has_all(value, op.filter):
                    if position in wanted:
                        taken.append((found, value, None))
                    position += 1
        if op.refresh_ttl:
            await self._refresh([found for found, _, _ in taken])
        return [
            SearchItem(
                namespace=found.namespace,
                key=found.name,
                value=value,
                created_at=_moment(found.item.created_at_us),
                updated_at=_moment(found.item.updated_at_us),
                score=score,
            )
            for found, value, score in taken
        ]

    async def _rank(
        self, candidates: Sequence[tuple[ItemMatch, Any]], prefix: Sequence[str], query: str, embedder: Embedder
    ) -> list[tuple[ItemMatch, Any, float | None]]:
        """Sort candidates by likeness to a query.

        The most alike of an item's texts counts. Candidates without a vector come last.
        """
        stored: dict[bytes, list[bytes]] = {}
        async for key, row in self._scan(item_rows.VECTORS, row_keys.namespace_prefix(prefix)):
            stored[key.key] = item_rows.unpack_vectors(key, row)
        asked = await embedder.query(query)
        ranked = [
            (number, item) for number, (found, _) in enumerate(candidates) for item in stored.get(found.key.key, ())
        ]
        alike = await embedder.compare(asked, [vector for _, vector in ranked])
        best: dict[int, float] = {}
        for (number, _), score in zip(ranked, alike, strict=True):
            best[number] = max(score, best.get(number, score))
        order = sorted(best, key=lambda number: best[number], reverse=True)
        order += [number for number in range(len(candidates)) if number not in best]
        return [(*candidates[number], best.get(number)) for number in order]

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        prefix: tuple[str, ...] = ()
        for condition in conditions:
            if condition.match_type == "prefix":
                fixed = tuple(condition.path)
                prefix = max(prefix, fixed[: fixed.index("*")] if "*" in fixed else fixed, key=len)
        found = {
            namespace[: op.max_depth]
            async for namespace in self._namespaces(prefix)
            if all(is_named(namespace, condition) for condition in conditions)
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    async def _namespaces(self, prefix: Sequence[str]) -> AsyncIterator[tuple[str, ...]]:
        """Yield the namespaces below a prefix that have a live item.

        It reads the first items of each, not all.
        """
        backend, start = self.ctx.backend, row_keys.namespace_prefix(prefix)
        after: bytes | None = None
        known: tuple[str, ...] | None = None
        while page := await backend.scan(item_rows.ITEM, tree=STORE, prefix=start, after=after, limit=NAMESPACE_PAGE):
            now = self.ctx.now_us()
            for key, row in page:
                namespace, _ = row_keys.item_of(key.key)
                if namespace != known and not item_rows.unpack_item(key, row).is_expired(now):
                    known = namespace
                    yield namespace
            last, _ = row_keys.item_of(page[-1][0].key)
            after = row_keys.end_of_items(last) if last == known else page[-1][0].key

    async def _iterate_below(self, prefix: Sequence[str]) -> AsyncIterator[ItemMatch]:
        """Yield the live items of a namespace and of those below it."""
        async for key, row in self._scan(item_rows.ITEM, row_keys.namespace_prefix(prefix)):
            item = item_rows.unpack_item(key, row)
            if not item.is_expired(self.ctx.now_us()):
                yield ItemMatch(*row_keys.item_of(key.key), key, row, item)

    async def _scan(self, space: str, prefix: bytes) -> AsyncIterator[tuple[RowKey, Row]]:
        after: bytes | None = None
        while page := await self.ctx.backend.scan(space, tree=STORE, prefix=prefix, after=after, limit=PAGE):
            for found in page:
                yield found
            if len(page) < PAGE:
                return
            after = page[-1][0].key

    def _value(self, item: StoredItem) -> Any:
        return self.ctx.codec.decode(frame.content(item.content))

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _put(self, puts: dict[ItemKey, PutOp]) -> None:
        contents = {place: self._encode_item(op) for place, op in puts.items()}
        embedded = await self._embed(puts)
        item_keys = [item_rows.item_row(row_keys.item_key(*place)) for place in puts]
        for attempt in range(MAX_ATTEMPTS + 1):
            found = await self.ctx.backend.rows(item_keys)
            writes: list[RowWrite] = []
            for (place, op), key, row in zip(puts.items(), item_keys, found, strict=True):
                value = None
                if op.value is not None:
                    value = item_rows.pack_item(key, self._make_stored(op, contents[place], key, row))
                vector = embedded.get(place)
                of_vectors = item_rows.vectors_row(key.key)
                packed = item_rows.pack_vectors(of_vectors, vector) if vector else None
                if attempt < MAX_ATTEMPTS:
                    writes.append(RowWrite(key, value, row.version if row else ABSENT))
                else:  # others are quicker each time: the last one to write counts, as in any other store
                    writes.append(RowWrite(key, value))
                writes.append(RowWrite(of_vectors, packed))
            try:
                await self.ctx.backend.commit(Commit(tree=STORE, rows=writes))
            except CommitConflict:
                continue
            return

    def _encode_item(self, op: PutOp) -> bytes:
        if op.value is None:
            return b""
        return frame.compress(self.ctx.codec.encode(dict(op.value), f"value of {op.key!r:.60}"))

    def _make_stored(self, op: PutOp, content: bytes, key: RowKey, row: Row | None) -> StoredItem:
        now = self.moments.take(self.ctx.now_us())
        before = item_rows.unpack_item(key, row) if row else None
        ttl = None if op.ttl is None else round(op.ttl * SECONDS_IN_A_MINUTE * _MICROSECONDS)
        if ttl is not None and ttl <= 0:
            raise UsageError(f"ttl is {op.ttl!r}: it is a positive number of minutes. Leave it out to keep the item")
        return StoredItem(
            created_at_us=before.created_at_us if before and not before.is_expired(now) else now,
            updated_at_us=now,
            expires_at_us=None if ttl is None else now + ttl,
            ttl_us=ttl,
            content=content,
        )

    async def _embed(self, puts: dict[ItemKey, PutOp]) -> dict[ItemKey, dict[str, bytes]]:
        """Return the vectors of the put items, by the paths of their texts. Each text is embedded once."""
        if self.index is None or self.embedder is None:
            return {}
        texts = {place: self.index.texts_of(op) for place, op in puts.items()}
        different = list(dict.fromkeys(text for of_paths in texts.values() for text in of_paths.values()))
        if not different:
            return {}
        made = await self.embedder.documents(different)
        if len(made) != len(different):
            raise UsageError(f"the embedder gave {len(made)} vectors for {len(different)} texts")
        of_text = dict(zip(different, map(vectors.pack, made), strict=True))
        return {place: {path: of_text[text] for path, text in of_paths.items()} for place, of_paths in texts.items()}

    async def _refresh(self, read: Sequence[ItemMatch]) -> None:
        """Restart the time to live of items that were read.

        An item that was changed meanwhile has restarted its own.
        """
        now = self.ctx.now_us()
        for found in read:
            if found.item.ttl_us is None:
                continue
            item = found.item._replace(expires_at_us=now + found.item.ttl_us)
            write = RowWrite(found.key, item_rows.pack_item(found.key, item), found.row.version)
            try:
                await self.ctx.backend.commit(Commit(tree=STORE, rows=[write]))
            except CommitConflict:
                continue


def _sort(found: Sequence[ItemMatch]) -> list[ItemMatch]:
    """Sort by namespace, then by time of creation.

    The namespace whose first item is oldest comes first.
    """
    oldest: dict[tuple[str, ...], int] = {}
    for item_match in found:
        created = item_match.item.created_at_us
        oldest[item_match.namespace] = min(created, oldest.get(item_match.namespace, created))
    return sorted(
        found, key=lambda match: (oldest[match.namespace], match.namespace, match.item.created_at_us, match.key.key)
    )


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / _MICROSECONDS, UTC)
