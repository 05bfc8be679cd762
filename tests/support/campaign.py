"""Size of the campaigns: small counts in `make test`, all with HOLDFAST_SOAK=1; totals for `soak.py`."""

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
BACKENDS = ("sqlite", "files")

CRASH_POINTS = None if SOAK else 120  # for each backend; None is all of them
ERROR_POINTS = None if SOAK else 24
KILLS = int(os.environ.get("HOLDFAST_KILLS", "1000" if SOAK else "50"))  # over all backends
HANDOFFS = 1000 if SOAK else 200  # that processes race for, on each backend
FUZZ_TIMES = 100 if SOAK else 1  # as many hostile trees, values and databases
POWER_CUTS = 20 if SOAK else 2  # for each backend


def share(everything: Sequence[T], number: int, of: int) -> list[T]:
    """The part of the work that test `number` of `of` does: shares run side by side."""
    return list(everything[number::of])


def randomness(*names: object) -> random.Random:
    """The same in each run of `make test`; other in each soak, which says its seed."""
    seed = os.environ.get("HOLDFAST_SEED", "1")
    return random.Random(f"{seed} {names}")


def tally(what: str, **counts: int) -> None:
    """Notes what a test did where `soak.py` will count it."""
    path = os.environ.get("HOLDFAST_TALLY")
    if path:
        line = json.dumps({"what": what, **counts}) + "\n"
        with Path(path).open("a") as file:
            file.write(line)
