"""Length of the machine's runs: `HOLDFAST_SOAK=1` makes the long ones much longer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SOAK = bool(os.environ.get("HOLDFAST_SOAK"))
TIMEOUT = 100_000 if SOAK else 900  # Hypothesis looks for a shorter example for 300 s: it must be able to tell it


def short(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )


def long(examples: int, steps: int) -> settings:
    return short(examples * 20, steps * 2) if SOAK else short(examples, steps)
