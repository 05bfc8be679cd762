"""The server's clock, for a store that many hosts share.

TTLs, leases and ages are compared by one clock: a host with a wrong clock would otherwise expire
the data of others. The server's time is read when a store is opened and once a minute from then on.
In between, the time since this machine's boot advances it; no user can set that clock.
"""

from __future__ import annotations

import time

ASK_AGAIN_US = 60_000_000


class StoreClock:
    def __init__(self) -> None:
        self._ahead_us: int | None = None  # the store's time minus the time since this machine's boot
        self._asked_us = 0

    @property
    def is_due(self) -> bool:
        """Return whether to ask the server: never asked yet, or too long ago."""
        return self._ahead_us is None or since_start_us() - self._asked_us > ASK_AGAIN_US

    def set(self, store_us: int, asked_us: int) -> None:
        """Set the clock to the server's time, which was requested at `asked_us` since this machine's boot."""
        now_us = since_start_us()
        self._ahead_us = store_us - (asked_us + now_us) // 2
        self._asked_us = now_us

    def now_us(self) -> int:
        """Return the store's time; this machine's until the store was asked once."""
        if self._ahead_us is None:
            return time.time_ns() // 1000
        return since_start_us() + self._ahead_us


if hasattr(time, "CLOCK_BOOTTIME"):

    def since_start_us() -> int:
        """Return the time since this machine's boot; it advances while the machine sleeps."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

else:  # no better clock: after a sleep the time is wrong until the server is asked again

    def since_start_us() -> int:
        return time.monotonic_ns() // 1000
