"""The trigger of garbage collection: how much of the store has expired, and which client collects.

The server can't drop a checkpoint by itself: a younger one may share its elements, a pin may hold
it, its number keeps a session without gaps. But it counts expired records. Once they are a fixed
part of the store, one of its clients is asked to collect. So the cost of a collection, a pass over
all records, is spread over the records that it frees.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

from holdfast.backends.redis.queries import StoreQueries
from holdfast.backends.redis.script_calls import Calls

CHECK_SECONDS = 60.0
FIRST_CHECK_SECONDS = 10.0  # after the first call: a client that is gone by then is not bothered
PART_OF_ALL = 4  # collected once a quarter of all records has expired
TURN_SECONDS = 600.0  # at most one collection in this time, by any client; one that died is forgotten after it


class Overdue:
    """A periodic check for expired records, which calls `collect` from the event loop of the client."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._asked: weakref.WeakMethod[Callable[[], None]] | None = None
        self._next_check: float | None = None

    def ask_to_collect(self, collect: Callable[[], None]) -> None:
        """Call `collect`, a method, when it is time to check. This does not keep it alive."""
        self._asked = weakref.WeakMethod(collect)

    def check_if_due(self) -> None:
        if self._asked is None:
            return
        now = time.monotonic()
        if self._next_check is None:
            self._next_check = now + FIRST_CHECK_SECONDS
        if now < self._next_check:
            return
        self._next_check = now + CHECK_SECONDS
        collect = self._asked()
        if collect is not None:
            collect()

    async def take_turn(self, reading: StoreQueries) -> bool:
        """Return whether enough has expired, and no other client collects it."""
        over, records = await self._count(reading)
        if not over:
            return False
        held = int(await self._calls.read("held", [False]))
        if (over - held) * PART_OF_ALL < records or over <= held:
            return False
        return bool(await self._calls.read("take_turn", [int(TURN_SECONDS * 1000)]))

    async def note_held(self, reading: StoreQueries) -> None:
        """Note the expired records that a collection left: they are held, and no reason for the next one."""
        over, _ = await self._count(reading)
        await self._calls.read("held", [over])

    async def _count(self, reading: StoreQueries) -> tuple[int, int]:
        answers = await reading.call_everywhere("overdue", [])
        return sum(over for over, _ in answers), sum(records for _, records in answers)
