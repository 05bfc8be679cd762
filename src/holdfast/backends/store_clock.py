"""The clock of a store that many hosts share: its server's.

Times to live, leases and ages are compared by one clock, or a host whose clock is wrong would end what belongs to others.
The server's time is asked for when a store is opened and once a minute from then on; in between it goes on with the time
since this machine was started, which nobody sets.
"""

from __future__ import annotations

import time

ASK_AGAIN_US = 60_000_000


class StoreClock:
    def __init__(self) -> None:
        self._ahead_us: int | None = None  # of the store's time before that since this machine's start
        self._asked_us = 0

    @property
    def is_due(self) -> bool:
        """Whether the server is to be asked: not yet asked, or some time ago."""
        return self._ahead_us is None or since_start_us() - self._asked_us > ASK_AGAIN_US

    def set(self, store_us: int, asked_us: int) -> None:
        """The server has said its time, which it was asked for at `asked_us` since this machine's start."""
        now_us = since_start_us()
        self._ahead_us = store_us - (asked_us + now_us) // 2
        self._asked_us = now_us

    def now_us(self) -> int:
        """The store's time; this machine's as long as the store was not asked for anything."""
        if self._ahead_us is None:
            return time.time_ns() // 1000
        return since_start_us() + self._ahead_us


if hasattr(time, "CLOCK_BOOTTIME"):

    def since_start_us() -> int:
        """Time since this machine was started; it goes on while the machine sleeps."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

else:  # there is nothing better: after a sleep the time is wrong until the server is asked again

    def since_start_us() -> int:
        return time.monotonic_ns() // 1000
