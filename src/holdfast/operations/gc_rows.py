"""Removal of rows by gc: those whose tree was collected, and single ones."""

from __future__ import annotations

from holdfast.backends.port import Commit, CommitConflict, RowKey, RowWrite
from holdfast.format.rows import head
from holdfast.operations.context import StoreContext

PAGE = 500


class LiveTrees:
    """A memory of the trees that exist: they have a head.

    Ask after the row was read: a session that writes a row has a head before.
    """

    def __init__(self, ctx: StoreContext) -> None:
        self._ctx = ctx
        self._found: set[bytes] = set()

    async def has(self, tree: bytes) -> bool:
        if tree not in self._found and await self._ctx.backend.scan(head.HEAD, tree=tree, limit=1):
            self._found.add(tree)
        return tree in self._found


async def gc_rows(ctx: StoreContext, space: str) -> None:
    """Remove the rows of a space whose trees were collected."""
    live = LiveTrees(ctx)
    after: bytes | None = None
    while page := await ctx.backend.scan(space, after=after, limit=PAGE):
        for key, row in page:
            if not await live.has(key.tree):
                await remove_row(ctx, key, row.version)
        after = page[-1][0].key


async def remove_row(ctx: StoreContext, key: RowKey, version: int, *extra_rows: RowWrite) -> bool:
    """Remove a row, and write others with it, unless it has changed; return whether it did."""
    try:
        await ctx.backend.commit(Commit(tree=key.tree, rows=[RowWrite(key, None, version), *extra_rows]))
    except CommitConflict:
        return False
    return True
