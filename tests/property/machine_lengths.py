"""How long the machine runs: `HOLDFAST_SOAK=1` makes it longer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SOAK = bool(os.environ.get("HOLDFAST_SOAK"))
TIMEOUT = 100_000 if SOAK else 900  # Hypothesis looks for a shorter example for 300 s: it must be able to tell it


def lengths(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples * (40 if SOAK else 1),
        stateful_step_count=steps * (2 if SOAK else 1),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
