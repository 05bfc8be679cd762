"""wait: rows that say which session waits for what, since when, and until when at most.

A wait is written down once it has lasted a second. It is removed when the wait ends; the row of a
process that died stays until its successor has waited in its place.
"""

from __future__ import annotations

from holdfast.backends.port import Commit, RowKey, RowWrite
from holdfast.errors import StoreError
from holdfast.format.rows import delegation as rows
from holdfast.format.rows.delegation import WaitRow
from holdfast.operations.context import StoreContext

NOTED_AFTER_US = 1_000_000
SHORTEST_POLL, LONGEST_POLL = 0.05, 1.0


class NotedWait:
    """A wait of a session at a place of its program, with the time that earlier lives have waited."""

    def __init__(self, ctx: StoreContext, key: RowKey, wait: WaitRow, noted: tuple[str, ...] | None) -> None:
        self._ctx = ctx
        self._key = key
        self._wait = wait
        self._noted = noted  # the targets of the row; None: there is none
        self._poll = SHORTEST_POLL

    @classmethod
    async def begin(
        cls, ctx: StoreContext, tree: bytes, session_id: str, place: str, kind: str, seconds: float | None
    ) -> NotedWait:
        """Begin to wait, or go on with the wait of an earlier life: its time counts."""
        key = rows.wait_key(session_id, place, tree)
        [row] = await ctx.backend.rows([key])
        known = None if row is None else rows.unpack_wait(key, row)
        since_us = ctx.now_us() if known is None else known.since_us
        until_us = None if seconds is None else since_us + round(seconds * 1e6)
        noted = None if known is None else known.targets
        return cls(ctx, key, WaitRow(session_id, kind, (), since_us, until_us), noted)

    @property
    def kind(self) -> str:
        return self._wait.kind

    @property
    def until_us(self) -> int | None:
        return self._wait.until_us

    def ends_within(self, seconds: float) -> bool:
        """Return whether its time is over so soon."""
        until_us = self._wait.until_us
        return until_us is not None and until_us <= self._ctx.now_us() + round(seconds * 1e6)

    @property
    def is_over(self) -> bool:
        return self._wait.until_us is not None and self._ctx.now_us() >= self._wait.until_us

    async def pause(self, seen: int, targets: tuple[str, ...]) -> None:
        """Wait for the next commit after `seen`, or a moment, for these targets."""
        await self.note(targets)
        backend, now = self._ctx.backend, self._ctx.now_us()
        left = self._poll if self._wait.until_us is None else min(self._poll, (self._wait.until_us - now) / 1e6)
        if not await backend.wait_for_commit(seen, max(left, 0.001)):
            raise StoreError("the client was closed while it waited")
        self._poll = SHORTEST_POLL if backend.committed != seen else min(self._poll * 2, LONGEST_POLL)

    async def note(self, targets: tuple[str, ...], *, at_once: bool = False) -> None:
        """Write the wait down once it has lasted, and again when its targets have changed."""
        if targets == self._noted or not (at_once or self._ctx.now_us() >= self._wait.since_us + NOTED_AFTER_US):
            return
        value = self._wait._replace(targets=targets).pack(self._key)
        await self._ctx.backend.commit(Commit(tree=self._key.tree, rows=[RowWrite(self._key, value)]))
        self._noted = targets

    async def end(self) -> None:
        if self._noted is not None:
            await self._ctx.backend.commit(Commit(tree=self._key.tree, rows=[RowWrite(self._key, None)]))
            self._noted = None


async def waits_of(ctx: StoreContext, tree: bytes) -> list[WaitRow]:
    """Return the waits that the sessions of a tree have written down."""
    return [rows.unpack_wait(key, row) for key, row in await ctx.backend.scan(rows.WAIT, tree=tree)]
