"""`keep_last`: of each namespace of a thread the newest checkpoints are kept, and what their delta channels are made from."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from holdfast.adapters.langgraph import history, keys
from holdfast.adapters.langgraph.keys import Place
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.adapters.langgraph.threads import Threads

BATCH = 16  # so many puts share the work of ending what is too old
REMEMBERED = 4096


class Shortening:
    """Counts the puts to each namespace, and shortens it every so often. The first put of a process does, too."""

    def __init__(self, keep_last: int) -> None:
        self._keep_last = keep_last
        self._puts: OrderedDict[Place, int] = OrderedDict()

    async def after_put(self, threads: Threads, place: Place) -> None:
        puts = self._puts.get(place, BATCH - 1) + 1
        self._puts[place] = puts % BATCH
        while len(self._puts) > REMEMBERED:
            try:
                self._puts.popitem(last=False)
            except KeyError:  # another thread was quicker
                break
        if puts >= BATCH:
            # The checkpoint is stored: that what is old could not be ended now must not look as if it were not.
            with contextlib.suppress(HoldfastError):
                await self._shorten(threads, place)

    async def _shorten(self, threads: Threads, place: Place) -> None:
        entries = await threads.entries(keys.of_place(place))  # newest first
        if len(entries) <= self._keep_last:
            return
        needed = await history.needed_for(threads, place, [entry.id for entry in entries[: self._keep_last]])
        await threads.end([entry for entry in entries if entry.id not in needed])


def checked(keep_last: Any) -> int | None:
    if keep_last is None:
        return None
    if isinstance(keep_last, bool) or not isinstance(keep_last, int) or keep_last < 1:
        raise UsageError(
            f"keep_last is {keep_last!r}: it must be a whole number from 1 on, of checkpoints that each thread keeps. Leave "
            "it out to keep all"
        )
    return keep_last
