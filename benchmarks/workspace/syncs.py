"""What a bare sync costs where the figures are measured, and on other file systems of the same machine.

A snapshot that has returned survives a power cut, so it ends with a sync, which is most of what a
small one waits for. git syncs nothing here (`core.fsync` leaves loose objects and the index out).
"""

import os
import statistics
import time
from pathlib import Path

from benchmarks.workspace import filesystem

TIMES = 100
PAGE = 4096


def measure(where: Path) -> dict[str, dict[str, float]]:
    """By file system, the machine's own among them: milliseconds that a write of 4 KB and its
    `fdatasync` take, at the end of a file, and over what the file has there already. What no file
    system can be made for is left out."""
    found = {"the machine's own": _bare(where)}
    for kind in filesystem.KINDS:
        with filesystem.fresh(kind, where, filesystem.SMALL_BYTES) as place:
            if place != where:
                found[kind] = _bare(place)
    return found


def _bare(where: Path) -> dict[str, float]:
    os.sync()
    file = where / "bare-sync"
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return {"at the end": _median(descriptor), "over": _median(descriptor)}
    finally:
        os.close(descriptor)
        file.unlink()


def _median(descriptor: int) -> float:
    data, taken = os.urandom(PAGE), []
    for number in range(TIMES):
        start = time.perf_counter()
        os.pwrite(descriptor, data, number * PAGE)
        os.fdatasync(descriptor)
        taken.append(time.perf_counter() - start)
    return round(1000 * statistics.median(taken), 3)
