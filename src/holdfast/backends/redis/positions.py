"""Positions where there are several shards: one order for all of them.

The first shard draws the numbers, and notes those of a commit as open until the commit has told how it ended. A reader
stops below the lowest that is open, so nothing appears behind it. If a writer dies in between, its note is overdue after
a while; then whoever reads tells the commit's shard to refuse it from now on, so that it is decided, one way or the other,
and closes the note. A writer that was only slow is told "late", and draws again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from holdfast.backends.port import Change
from holdfast.backends.redis import layout
from holdfast.backends.redis.calls import Call, Calls, Durability, NotReplicatedError
from holdfast.backends.redis.reading import Reading
from holdfast.backends.redis.scripts import script
from holdfast.errors import StoreError

PATIENCE_SECONDS = 30.0

Note = bytes  # first:last:shard:due


class Positions:
    def __init__(
        self,
        calls: Calls,
        reading: Reading,
        durability: Durability | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._calls = calls
        self._reading = reading
        self._durability = durability
        self._patience = patience

    async def draw(self, commits: Sequence[tuple[int, int]]) -> list[Note]:
        """Positions for commits, (how many, which shard) of each. If an answer is lost, its notes become overdue."""
        call = Call(layout.FIRST_SHARD, script("draw"), [list(commits), int(self._patience * 1e6)])
        # Before a position is used, replicas have it: one that a failover takes back would be given out again.
        try:
            [notes] = await self._calls.read_all([call], self._durability)
        except StoreError as error:
            if isinstance(error.__cause__, NotReplicatedError):  # nobody will use them: nobody needs to wait
                await self.decided(error.__cause__.answer)
            raise
        drawn: list[Note] = notes
        return drawn

    async def decided(self, notes: Sequence[Note]) -> None:
        """These commits are done or refused. If that can't be told, the notes become overdue."""
        if notes:
            with suppress(StoreError):
                await self._calls.read("decided", [list(notes)])

    async def refuse(self, notes: Sequence[Note]) -> None:
        """Makes sure that commits are not carried out any more, if they were not yet; then they are decided."""
        for note in notes:
            _, last, shard, _ = note.split(b":")
            call = Call(int(shard), script("close_below"), [int(last)])
            await self._calls.read_all([call], self._durability)
        await self.decided(notes)

    async def last(self) -> int:
        """The position up to which everything is decided."""
        if self._reading.shards == 1:
            return int(await self._calls.read("last", []))
        settled, *overdue = await self._calls.read("settled", [])
        if overdue:
            await self.refuse(overdue)
            settled, *_ = await self._calls.read("settled", [])
        return int(settled)

    async def changes(self, after: int, limit: int) -> list[Change]:
        if self._reading.shards == 1:
            answers = [await self._calls.read("changes", [b"%d" % after, False, limit])]
        else:
            last = await self.last()
            if last <= after:
                return []
            answers = await self._reading.everywhere("changes", [b"%d" % after, b"%d" % last, limit])
        return sorted(Change(*layout.record_of(*found)) for answer in answers for found in answer)[:limit]
