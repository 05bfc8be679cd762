"""`keep_last`: keeps each namespace's newest checkpoints, and the ancestors their delta channels need."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from holdfast.adapters.langgraph import listing, row_keys
from holdfast.adapters.langgraph.row_keys import ThreadNamespace
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.adapters.langgraph.thread_store import Threads

BATCH = 16  # so many puts share the work of expiring old checkpoints
REMEMBERED = 4096


class HistoryTrimmer:
    """A counter of the puts to each namespace that trims it at intervals, and at a process's first put."""

    def __init__(self, keep_last: int) -> None:
        self._keep_last = keep_last
        self._puts: OrderedDict[ThreadNamespace, int] = OrderedDict()

    async def after_put(self, threads: Threads, place: ThreadNamespace) -> None:
        puts = self._puts.get(place, BATCH - 1) + 1
        self._puts[place] = puts % BATCH
        while len(self._puts) > REMEMBERED:
            try:
                self._puts.popitem(last=False)
            except KeyError:  # another thread was quicker
                break
        if puts >= BATCH:
            # The checkpoint is stored: a failure to expire old ones must not look like a failed
            # put.
            with contextlib.suppress(HoldfastError):
                await self._shorten(threads, place)

    async def _shorten(self, threads: Threads, place: ThreadNamespace) -> None:
        entries = await threads.entries(row_keys.place_prefix(place))  # newest first
        if len(entries) <= self._keep_last:
            return
        needed = await listing.needed_for(threads, place, [entry.id for entry in entries[: self._keep_last]])
        await threads.end([entry for entry in entries if entry.id not in needed])


def check_keep_last(keep_last: Any) -> int | None:
    if keep_last is None:
        return None
    if isinstance(keep_last, bool) or not isinstance(keep_last, int) or keep_last < 1:
        raise UsageError(
            f"keep_last is {keep_last!r}: it must be a whole number from 1 on, of checkpoints that each thread keeps. "
            "Leave it out to keep all"
        )
    return keep_last
