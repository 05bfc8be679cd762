"""Positions across several shards: one order for all of them.

The first shard draws the numbers, and notes those of a commit as open until the commit is decided.
A reader stops below the lowest open one, so nothing appears behind it. If a writer dies in between,
its note is overdue after a while. Then any reader makes the commit's shard refuse the commit from
now on, so that it is decided one way or the other, and closes the note. A writer that was only slow
gets the answer "late", and draws again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from holdfast.backends.port import Change
from holdfast.backends.redis import keys
from holdfast.backends.redis.queries import StoreQueries
from holdfast.backends.redis.script_calls import Calls, Durability, NotReplicatedError, ScriptCall, script
from holdfast.errors import StoreError

PATIENCE_SECONDS = 30.0

Note = bytes  # first:last:shard:due


class Positions:
    def __init__(
        self,
        calls: Calls,
        reading: StoreQueries,
        durability: Durability | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._calls = calls
        self._reading = reading
        self._durability = durability
        self._patience = patience

    async def draw(self, commits: Sequence[tuple[int, int]]) -> list[Note]:
        """Draw positions for commits, (count, shard) each. If an answer is lost, its notes become overdue."""
        call = ScriptCall(keys.FIRST_SHARD, script("draw"), [list(commits), int(self._patience * 1e6)])
        # Replicas have a position before it is used: one that a failover takes back would be given out
        # twice.
        try:
            [notes] = await self._calls.read_all([call], self._durability)
        except StoreError as error:
            if isinstance(error.__cause__, NotReplicatedError):  # unused positions: no reader needs to wait for them
                await self.close_notes(error.__cause__.answer)
            raise
        drawn: list[Note] = notes
        return drawn

    async def close_notes(self, notes: Sequence[Note]) -> None:
        """Close the notes of commits that are done or refused. If that fails, they become overdue."""
        if notes:
            with suppress(StoreError):
                await self._calls.read("decided", [list(notes)])

    async def refuse(self, notes: Sequence[Note]) -> None:
        """Refuse commits that were not carried out yet; then they are decided."""
        for note in notes:
            _, last, shard, _ = note.split(b":")
            call = ScriptCall(int(shard), script("close_below"), [int(last)])
            await self._calls.read_all([call], self._durability)
        await self.close_notes(notes)

    async def last(self) -> int:
        """Return the position up to which everything is decided."""
        if self._reading.shards == 1:
            return int(await self._calls.read("last", []))
        settled, *overdue = await self._calls.read("settled", [])
        if overdue:
            await self.refuse(overdue)
            settled, *_ = await self._calls.read("settled", [])
        return int(settled)

    async def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
        of: bytes | bool = False if feed is None else feed
        if self._reading.shards == 1:
            answers = [await self._calls.read("changes", [b"%d" % after, False, limit, of])]
        else:
            last = await self.last()
            if last <= after:
                return []
            answers = await self._reading.call_everywhere("changes", [b"%d" % after, b"%d" % last, limit, of])
        return sorted(Change(*keys.record_of(*found)) for answer in answers for found in answer)[:limit]
