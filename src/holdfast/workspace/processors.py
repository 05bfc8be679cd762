"""How many processors there are for this process."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """Those that it may use: of a machine's, perhaps few."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
