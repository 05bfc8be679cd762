"""Collection of adapters' rows whose checkpoint or time is gone, and of ended extensions of TTLs.

An entry of an index is collected once its checkpoint has expired for good, and with it the rows
that it indexes. A row without an entry may have come before its checkpoint: it stays if it names
none.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.backends.port import STORE, Commit, CommitConflict, Row, RowKey, RowWrite, check_readable
from holdfast.format.rows import head, hold, portable
from holdfast.format.rows.adapter import IndexedRows, TimedRows
from holdfast.format.state import record
from holdfast.operations.context import StoreContext
from holdfast.operations.gc_rows import remove_row

PAGE = 500
Rows = list[tuple[RowKey, Row]]


async def gc_adapter_rows(ctx: StoreContext) -> None:
    now, extensions = ctx.now_us(), await ctx.backend.scan(hold.UNTIL)
    await _remove(ctx, [(key, row) for key, row in extensions if hold.unpack_until(key, row) <= now])
    for adapter in ctx.load_adapters():
        for indexed in adapter.rows.indexed:
            await _gc_indexed(ctx, indexed)
        for timed in adapter.rows.timed:
            await gc_timed(ctx, timed)


async def gc_timed(ctx: StoreContext, timed: TimedRows) -> int:
    """Remove every row whose time is over, with its companions, and return their number.

    A row that was put again meanwhile stays.
    """
    removed, after = 0, None
    while page := check_readable(await ctx.backend.scan(timed.space, tree=STORE, after=after, limit=PAGE)):
        after = page[-1][0].key
        now = ctx.now_us()
        for key, row in page:
            if not timed.is_expired(key, row, now):
                continue
            companions = [RowWrite(RowKey(space, key.key, STORE), None) for space in timed.companions]
            removed += await remove_row(ctx, key, row.version, *companions)
    return removed


async def _gc_indexed(ctx: StoreContext, indexed: IndexedRows) -> None:
    index = await ctx.backend.scan(indexed.index_space)
    gone = await _find_gone(ctx, {_checkpoint(key, row) for key, row in index})
    dead = [(key, row) for key, row in index if _checkpoint(key, row) in gone]
    alive_keys = {key.key for key, row in index if _checkpoint(key, row) not in gone}
    dead_keys = {key.key for key, _ in dead} - alive_keys
    await _remove(ctx, dead)
    after: bytes | None = None
    while page := check_readable(await ctx.backend.scan(indexed.space, tree=STORE, after=after, limit=PAGE)):
        await _remove(ctx, await _orphans(ctx, indexed, page, alive_keys, dead_keys))
        after = page[-1][0].key


async def _orphans(
    ctx: StoreContext, indexed: IndexedRows, page: Iterable[tuple[RowKey, Row]], alive: set[bytes], dead: set[bytes]
) -> Rows:
    """Return the rows of a page whose checkpoint is gone."""
    unknown: Rows = []
    found: Rows = []
    for key, row in page:
        entry = indexed.index_key(key.key)
        if entry in dead:
            found.append((key, row))
        elif entry not in alive and _checkpoint(key, row):
            unknown.append((key, row))
    gone = await _find_gone(ctx, {_checkpoint(key, row) for key, row in unknown})
    return found + [(key, row) for key, row in unknown if _checkpoint(key, row) in gone]


def _checkpoint(key: RowKey, row: Row) -> bytes:
    return portable.first_of(head.content(key, row))


async def _find_gone(ctx: StoreContext, checkpoints: Iterable[bytes]) -> set[bytes]:
    """Return those that have expired for good, without those whose expiry can still be undone."""
    wanted = [checkpoint for checkpoint in checkpoints if checkpoint]
    gone: set[bytes] = set()
    for start in range(0, len(wanted), PAGE):
        asked = wanted[start : start + PAGE]
        for id_, found in zip(asked, await ctx.backend.records(asked), strict=True):
            if found is None:
                gone.add(id_)
                continue
            stored = record.unpack(ctx.codec, found.data, expected_id=id_)
            if stored.is_tombstone:
                [undoable] = await ctx.backend.rows([RowKey(head.EXPIRED, id_, stored.tree)])
                if undoable is None:
                    gone.add(id_)
    return gone


async def _remove(ctx: StoreContext, found: Rows) -> None:
    """Remove the rows that are still as they were found. One that was put again stays."""
    by_tree: dict[bytes, list[RowWrite]] = {}
    for key, row in found:
        by_tree.setdefault(key.tree, []).append(RowWrite(key, None, row.version))
    for tree, writes in by_tree.items():
        try:
            await ctx.backend.commit(Commit(tree=tree, rows=writes))
        except CommitConflict:
            for write in writes:
                try:
                    await ctx.backend.commit(Commit(tree=tree, rows=[write]))
                except CommitConflict:
                    continue
