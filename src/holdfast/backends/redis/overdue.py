"""Whether it is time to collect: how much in the store has outlived its time to live, and who is to do it.

The server can't drop a checkpoint by itself: its elements may be those of a younger one, a pin may hold it, its number keeps a
session without gaps. But it counts what is over, and from the moment on at which that is a fixed part of the store, one of
those who use it is told to collect. So what a collection costs, a pass over all records, is shared by as many as it frees.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

from holdfast.backends.redis.calls import Calls
from holdfast.backends.redis.reading import Reading

LOOK_EVERY_SECONDS = 60.0
FIRST_LOOK_SECONDS = 10.0  # after the first call: who is gone by then had other things to do
PART_OF_ALL = 4  # collected once a quarter of all records is over
TURN_SECONDS = 600.0  # at most one collection in this time, by whomever; one that died is forgotten after it


class Overdue:
    """Looks now and then. `ask_to_collect` is called from the event loop of whoever uses the store."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._asked: weakref.WeakMethod[Callable[[], None]] | None = None
        self._next_look: float | None = None

    def ask_to_collect(self, collect: Callable[[], None]) -> None:
        """`collect`, a method, is called when it is time to look. It is not kept alive by this."""
        self._asked = weakref.WeakMethod(collect)

    def look_if_due(self) -> None:
        if self._asked is None:
            return
        now = time.monotonic()
        if self._next_look is None:
            self._next_look = now + FIRST_LOOK_SECONDS
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_SECONDS
        collect = self._asked()
        if collect is not None:
            collect()

    async def take_turn(self, reading: Reading) -> bool:
        """Whether enough is over, and nobody else collects it."""
        over, records = await self._count(reading)
        if not over:
            return False
        held = int(await self._calls.read("held", [False]))
        if (over - held) * PART_OF_ALL < records or over <= held:
            return False
        return bool(await self._calls.read("take_turn", [int(TURN_SECONDS * 1000)]))

    async def note_held(self, reading: Reading) -> None:
        """What is over and still there after a collection is held: it is no reason for the next one."""
        over, _ = await self._count(reading)
        await self._calls.read("held", [over])

    async def _count(self, reading: Reading) -> tuple[int, int]:
        answers = await reading.everywhere("overdue", [])
        return sum(over for over, _ in answers), sum(records for _, records in answers)
