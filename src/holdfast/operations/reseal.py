"""rekey --data: seal what a store holds under new keys, beside writers. Resumable after any crash.

1. One commit adds an epoch to the store's key: a new root. From then on the trees, and the rows of the
   store, get keys that come from it.
2. Rows, records and segments under older keys are sealed again: each in its place, if it is still what
   was read. Heads come first. A writer that knows only the old key of a tree then fails the comparison
   with the head that it makes anyway, reads it again, and follows. This is repeated until nothing is
   found under an older key.
3. One commit says that it is finished. Readers go on accepting the older epochs, because a process that
   has not saved since may still write under them.
4. `destroy_old`, later: once no such process is left, the old roots are removed, and the key rows under
   them. Until then, an attacker who knows an old root could forge data under it.

Blobs are not sealed again. The key of a blob comes from its content, and the records that say which
content are sealed under the new keys: an old root alone opens no blob.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeVar

from holdfast.backends.bridge.base import Bridge
from holdfast.backends.port import (
    STORE,
    Commit,
    CommitConflict,
    RecordWrite,
    Row,
    RowKey,
    RowWrite,
    Segment,
    SegmentDelete,
    Span,
    UnreadableBytes,
)
from holdfast.errors import ConflictError, CorruptError, HoldfastError, StoreBusyError
from holdfast.format.rows import head
from holdfast.format.state import record
from holdfast.model.key_status import KeyStatus
from holdfast.operations.context import StoreContext
from holdfast.operations.rekey import change_marker, get_bridge, read_marker, scan_key_rows, status
from holdfast.sealing import envelope, store_keys
from holdfast.sealing.bridge import SealedBridge
from holdfast.sealing.row_names import ALL_SPACES
from holdfast.sealing.store_keys import MARKER, Marker, Secrets, StoreKeys, is_of_store

Item = TypeVar("Item")

PAGE = 200
BATCH_BYTES = 1 << 20
PASSES = 10
SPACES = (head.HEAD, *(space for space in ALL_SPACES if space != head.HEAD))


async def reseal(ctx: StoreContext) -> KeyStatus:
    """Seal everything but blobs under the keys of a new epoch; finish what an earlier call began."""
    bridge = get_bridge(ctx)

    def begin(marker: Marker, secrets: Secrets) -> tuple[Secrets, bool]:
        return (secrets if marker.is_resealing else secrets.with_new_epoch()), True

    await change_marker(bridge, begin)
    newest = _keys(bridge).current.epoch
    await _reseal_all(ctx, bridge)

    def finish(marker: Marker, secrets: Secrets) -> tuple[Secrets, bool]:
        return secrets, marker.is_resealing and max(secrets.roots) > newest  # another process has begun one since

    await change_marker(bridge, finish)
    return await status(ctx)


async def destroy_old(ctx: StoreContext) -> KeyStatus:
    """Remove the keys of older epochs, once nothing but blobs is sealed under them."""
    bridge = get_bridge(ctx)
    marker, _ = await read_marker(bridge.inner)
    newest = max(marker.epochs)

    def destroy(_: Marker, secrets: Secrets) -> tuple[Secrets, bool]:
        if max(secrets.roots) != newest:  # data is sealed under the epoch that would be an older one now
            raise ConflictError(
                "another process has begun to encrypt the data again: the old keys stay. Let "
                "`holdfast rekey --data` end, then try again"
            )
        return secrets.without_old_epochs(), False

    if len(marker.epochs) > 1 or marker.is_resealing:
        await bridge.store.reload(bridge.inner)
        unreadable = await _reseal_all(ctx, bridge)
        if unreadable:
            raise CorruptError(
                f"{unreadable} items can't be opened, and may be sealed under an old key: the old keys stay. "
                "`holdfast verify` names them"
            )
        await _refuse_unknown_rows(bridge.inner)
        await change_marker(bridge, destroy)
    await _delete_old_key_rows(bridge, newest)
    return await status(ctx)


async def _reseal_all(ctx: StoreContext, bridge: SealedBridge) -> int:
    """Seal again what is under older keys, until there is nothing; return how many items can't be opened."""
    for _ in range(PASSES):
        run = _Pass(ctx, bridge)
        await run.reseal()
        if not run.found:
            return run.unreadable
    raise StoreBusyError(
        "other processes keep writing under the old keys: data is readable under both. Restart those that have had "
        "the store open since before `holdfast rekey --data`, and repeat it: it resumes"
    )


class _Pass:
    """One walk through the store."""

    def __init__(self, ctx: StoreContext, bridge: SealedBridge) -> None:
        self.found = 0  # under older keys, sealed again or changed meanwhile
        self.unreadable = 0
        self._ctx, self._bridge, self._inner = ctx, bridge, bridge.inner
        self._known: dict[bytes, tuple[bytes, int] | None] = {}  # by the id of a key: its tree, and its epoch

    async def reseal(self) -> None:
        for space in SPACES:
            async for page in row_pages(self._inner, space):
                await self._reseal_rows(page)
        after: bytes | None = None
        while records := await self._inner.page_records(after, PAGE):
            after = records[-1].id
            old = [found.id for found in records if await self._is_old(envelope.record_kid(found.data))]
            await self._reseal_records(old)
        place: tuple[int, int] | None = None
        while infos := await self._inner.page_segments(place, PAGE):
            place = infos[-1].log, infos[-1].first
            await self._reseal_segments([Span(info.log, info.first, info.first + info.length) for info in infos])

    async def _is_old(self, kid: bytes | None) -> bool:
        found = await self._tree_of(kid)
        return found is not None and found[1] < _keys(self._bridge).current.epoch

    async def _tree_of(self, kid: bytes | None) -> tuple[bytes, int] | None:
        """Return the tree and the epoch of a key; None, and count it, if it can't be had."""
        if kid is not None and is_of_store(kid):
            return STORE, int.from_bytes(kid[4:], "big")
        if kid is not None and kid not in self._known:
            [row] = await self._inner.rows([store_keys.tree_key(kid)])
            opened = None
            if row is not None:
                try:
                    opened = _keys(self._bridge).open_tree_key(kid, row)
                except HoldfastError:  # readers of what is sealed under it get the error
                    opened = None
            self._known[kid] = None if opened is None else opened[1:]
        found = None if kid is None else self._known[kid]
        self.unreadable += found is None
        return found

    async def _reseal_rows(self, page: Sequence[tuple[RowKey, Row]]) -> None:
        old = [(key, row) for key, row in page if await self._is_old(envelope.kid(row.value))]
        by_tree: dict[bytes, list[RowWrite]] = {}
        for key, row in await self._bridge.open_rows(old):
            if isinstance(row.value, UnreadableBytes):
                self.unreadable += 1
            else:
                by_tree.setdefault(key.tree, []).append(RowWrite(key, row.value, row.version))
        for tree, writes in by_tree.items():
            for batch in _batches(writes, [len(write.value or b"") for write in writes]):
                await self._commit(Commit(tree, rows=batch))

    async def _reseal_records(self, ids: Sequence[bytes]) -> None:
        by_tree: dict[bytes, list[RecordWrite]] = {}
        for found in await self._bridge.records(ids) if ids else ():
            if found is None:
                continue
            id_, session, sequence, data = found
            try:
                stored = record.unpack(self._ctx.codec, data, expected_id=id_)
            except HoldfastError:
                self.unreadable += 1
                continue
            until = None if stored.is_tombstone else stored.expires_at_us
            write = RecordWrite(id_, session, sequence, data, expires_at_us=until, replaces=data)
            by_tree.setdefault(stored.tree, []).append(write)
        for tree, writes in by_tree.items():
            for batch in _batches(writes, [len(write.data) for write in writes]):
                await self._commit(Commit(tree, more_records=batch))

    async def _reseal_segments(self, spans: Sequence[Span]) -> None:
        by_tree: dict[bytes, list[Span]] = {}
        for span, found in zip(spans, await self._inner.segments(spans), strict=True):
            segment = _exact(span, found)
            kid = None if segment is None else envelope.kid(segment.data)
            if segment is not None and await self._is_old(kid):
                key = await self._tree_of(kid)
                assert key is not None
                by_tree.setdefault(key[0], []).append(span)
        for tree, of_tree in by_tree.items():
            for batch in _batches(of_tree, [BATCH_BYTES // 16] * len(of_tree)):
                await self._reseal_segments_of(tree, batch)

    async def _reseal_segments_of(self, tree: bytes, spans: Sequence[Span]) -> None:
        """Seal segments again, each if there is still one of its bounds.

        It has the same elements then, because the tail of a log never moves back (gc.py). Or it is an
        end mark in place of a single element, which the next gc removes once more.
        """
        deletes = []
        for span in spans:
            try:
                [found] = await self._bridge.segments([span])
            except HoldfastError:
                self.unreadable += 1
                continue
            segment = _exact(span, found)
            if segment is not None:
                deletes.append(SegmentDelete(span.log, segment.first, segment.length, (segment,)))
        await self._commit(Commit(tree, delete_segments=deletes))

    async def _commit(self, commit: Commit) -> None:
        """Carry out a commit; leave what has changed meanwhile to the next pass."""
        parts = [Commit(commit.tree, rows=[write]) for write in commit.rows]
        parts += [Commit(commit.tree, more_records=[write]) for write in commit.more_records]
        self.found += len(parts) + len(commit.delete_segments)
        await self._bridge.ensure_current_key(commit)
        try:
            await self._bridge.commit(commit)
        except CommitConflict:
            for part in parts if len(parts) > 1 else ():
                await self._commit(part)


def _keys(bridge: SealedBridge) -> StoreKeys:
    assert bridge.store.keys is not None
    return bridge.store.keys


def _exact(span: Span, found: Sequence[Segment]) -> Segment | None:
    """Return the segment with the bounds of a span; None if it was merged or trimmed meanwhile."""
    return next((item for item in found if (item.first, item.first + item.length) == span[1:]), None)


def _batches(items: Sequence[Item], sizes: Sequence[int]) -> Iterator[list[Item]]:
    """Yield the items in lists of at most PAGE, each of about BATCH_BYTES at most."""
    batch: list[Item] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if batch and (total + size > BATCH_BYTES or len(batch) == PAGE):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


async def row_pages(inner: Bridge, space: str) -> AsyncIterator[list[tuple[RowKey, Row]]]:
    """Yield all rows of a space, in pages.

    A page is cut between keys: rows of several trees under one key stay together.
    """
    after: bytes | None = None
    limit = PAGE
    while page := await inner.scan(space, after=after, limit=limit):
        last = page[-1][0].key
        whole = page if len(page) < limit else [entry for entry in page if entry[0].key != last]
        if not whole:
            limit *= 2
            continue
        yield whole
        after, limit = whole[-1][0].key, PAGE


async def _refuse_unknown_rows(inner: Bridge) -> None:
    """Raise an error if the store has rows of spaces that are not listed here: they would be lost."""
    total = (await inner.usage()).rows
    listed = sum([1 async for _ in scan_key_rows(inner)])
    for space in SPACES:
        async for page in row_pages(inner, space):
            listed += len(page)
    if listed < total:
        raise ConflictError(
            f"the store has {total} rows, and this holdfast knows {listed} of them: they may have been removed "
            "meanwhile, then try again; else a newer holdfast has written them. The old keys stay"
        )


async def _delete_old_key_rows(bridge: SealedBridge, newest: int) -> None:
    keys = _keys(bridge)
    writes = []
    async for key, row in scan_key_rows(bridge.inner):
        tree, epoch = store_keys.stated_tree(row) if key != MARKER else (STORE, 0)
        if 0 < epoch < newest and key.key == keys.kid(tree, epoch):  # what it states is true
            writes.append(RowWrite(key, None, row.version))
    for start in range(0, len(writes), PAGE):
        await bridge.inner.commit(Commit(STORE, rows=writes[start : start + PAGE]))
