"""The writes of tasks between two checkpoints: one row for each task, apart from the checkpoints.

They come from several threads at once, and perhaps before the checkpoint that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ormsgpack
from langgraph.checkpoint.base import WRITES_IDX_MAP, PendingWrite, writes_sort_key

from holdfast.adapters.langgraph import row_keys
from holdfast.adapters.langgraph.row_keys import ThreadNamespace
from holdfast.backends.port import ABSENT, STORE, Commit, CommitConflict, Row, RowKey, RowWrite, UnreadableBytes
from holdfast.errors import ConflictError, CorruptError
from holdfast.format import frame
from holdfast.format.rows import head
from holdfast.operations.context import StoreContext

MAX_ATTEMPTS = 200
SCANNED_AT_ONCE = 512

Kept = dict[int, list[Any]]  # by index: channel, task path, encoded value


async def put(
    ctx: StoreContext,
    place: ThreadNamespace,
    id_: str,
    checkpoint: bytes,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> None:
    """Add the writes of a task.

    The first ordinary write of an index stays; of LangGraph's own (errors, interrupts, resumes) the
    last one does. `checkpoint` is holdfast's id of the checkpoint, empty if it does not exist yet.
    """
    key = row_keys.writes_key(place, id_, task_id)
    # Encoded once, now: the caller may change the values afterwards.
    given: Kept = {}
    for position, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, position)
        given[index] = [channel, task_path, ctx.codec.encode(value, f"writes[{position}] ({channel})")]
    for _ in range(MAX_ATTEMPTS):
        [row] = await ctx.backend.rows([key])
        kept = _unpack(ctx, key, row)[1] if row else {}
        merged = {**given, **{index: write for index, write in kept.items() if index >= 0}}
        merged = {**kept, **merged}
        if merged == kept:
            return
        write = RowWrite(key, _pack(ctx, key, checkpoint, merged), row.version if row else ABSENT)
        try:
            await ctx.backend.commit(Commit(tree=STORE, rows=[write]))
        except CommitConflict:
            continue
        return
    raise ConflictError(
        f"the writes of task {task_id!r:.60} are being changed by so many at once that none gets through"
    )


async def add(
    ctx: StoreContext,
    place: ThreadNamespace,
    id_: str,
    checkpoint: bytes,
    tasks: Mapping[str, Mapping[int, Sequence[Any]]],
) -> None:
    """Add the writes of tasks from another store: channel, task path and value, by task and index.

    A task that already has writes here is left as it is.
    """
    given: dict[RowKey, Kept] = {}
    for task_id, writes in tasks.items():
        encode = ctx.codec.encode
        given[row_keys.writes_key(place, id_, task_id)] = {
            index: [channel, path, encode(value, f"writes of {task_id} ({channel})")]
            for index, (channel, path, value) in writes.items()
        }
    for _ in range(MAX_ATTEMPTS):
        existing = await ctx.backend.rows(list(given)) if given else []
        new = [key for key, row in zip(given, existing, strict=True) if row is None]
        if not new:
            return
        added = [RowWrite(key, _pack(ctx, key, checkpoint, given[key]), ABSENT) for key in new]
        try:
            await ctx.backend.commit(Commit(tree=STORE, rows=added))
        except CommitConflict:
            continue


async def pending(ctx: StoreContext, place: ThreadNamespace, id_: str) -> list[PendingWrite]:
    """Return all writes of tasks since a checkpoint, in the order in which LangGraph applies them."""
    found = await ctx.backend.scan(row_keys.WRITES, tree=STORE, prefix=row_keys.checkpoint_prefix(place, id_))
    return _sort_writes(ctx, found)


async def pending_of(ctx: StoreContext, place: ThreadNamespace, ids: Sequence[str]) -> dict[str, list[PendingWrite]]:
    """Return the pending writes of several checkpoints of a place, by their ids.

    It is one pass over the keys from the first to the last of them.
    """
    by_prefix = {row_keys.checkpoint_prefix(place, id_): id_ for id_ in ids}
    found: dict[str, list[tuple[RowKey, Row]]] = {}
    if by_prefix:
        after: bytes | None = min(by_prefix)[:-1]  # before the first one, and before little else
        last = max(by_prefix)
        while after is not None:
            page = await ctx.backend.scan(
                row_keys.WRITES, tree=STORE, prefix=row_keys.place_prefix(place), after=after, limit=SCANNED_AT_ONCE
            )
            for key, row in page:
                if isinstance(row.value, UnreadableBytes):  # its key does not tell whose it is
                    raise row.value.error
                id_ = by_prefix.get(row_keys.writes_prefix(key.key))
                if id_ is not None:
                    found.setdefault(id_, []).append((key, row))
            is_last = len(page) < SCANNED_AT_ONCE or row_keys.writes_prefix(page[-1][0].key) > last
            after = None if is_last else page[-1][0].key
    return {id_: _sort_writes(ctx, writes) for id_, writes in found.items()}


def _sort_writes(ctx: StoreContext, scanned: Sequence[tuple[RowKey, Row]]) -> list[PendingWrite]:
    found: list[tuple[tuple[str, str, int], str, str, bytes]] = []
    for key, row in scanned:
        task_id = row_keys.task_of(key.key)[2]
        for index, (channel, path, value) in _unpack(ctx, key, row)[1].items():
            found.append((writes_sort_key(path, task_id, index), task_id, channel, value))
    found.sort(key=lambda write: write[0])
    decode = ctx.codec.decode
    return [(task_id, channel, decode(value, path=f"writes ({channel})")) for _, task_id, channel, value in found]


async def removal(ctx: StoreContext, prefix: bytes) -> list[RowWrite]:
    """Return the row writes that delete the pending writes with this key prefix."""
    return [RowWrite(key, None) for key, _ in await ctx.backend.scan(row_keys.WRITES, tree=STORE, prefix=prefix)]


async def copy(ctx: StoreContext, source: str, target: str, copies: dict[bytes, bytes]) -> None:
    """Copies the writes of a thread to another. `copies` says which checkpoint was copied to which."""
    writes = []
    for key, row in await ctx.backend.scan(row_keys.WRITES, tree=STORE, prefix=row_keys.thread_prefix(source)):
        place, id_, task_id = row_keys.task_of(key.key)
        checkpoint, kept = _unpack(ctx, key, row)
        new_key = row_keys.writes_key(ThreadNamespace(target, place.ns), id_, task_id)
        writes.append(RowWrite(new_key, _pack(ctx, new_key, copies.get(checkpoint, b""), kept)))
    if writes:
        await ctx.backend.commit(Commit(tree=STORE, rows=writes))


def _pack(ctx: StoreContext, key: RowKey, checkpoint: bytes, kept: Kept) -> bytes:
    content = ctx.codec.encode([[index, *write] for index, write in kept.items()])
    return head.protect(key, ormsgpack.packb([checkpoint, frame.compress(content)]))


def _unpack(ctx: StoreContext, key: RowKey, row: Row) -> tuple[bytes, Kept]:
    try:
        checkpoint, framed = ormsgpack.unpackb(head.content(key, row))
        return checkpoint, {index: write for index, *write in ctx.codec.decode(frame.content(framed))}
    except (ValueError, TypeError) as error:
        raise CorruptError(f"the writes of a LangGraph task can't be read ({error}): the store is damaged") from error
