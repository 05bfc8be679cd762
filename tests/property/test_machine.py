"""The state machine over every backend. `HOLDFAST_SOAK=1` runs it longer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from machine import StoreMachine

SOAK = bool(os.environ.get("HOLDFAST_SOAK"))


def lengths(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples * (40 if SOAK else 1),
        stateful_step_count=steps * (2 if SOAK else 1),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class MemoryMachine(StoreMachine):
    kind = "memory"


class FilesMachine(StoreMachine):
    kind = "files"


class SqliteMachine(StoreMachine):
    kind = "sqlite"


TestMemory = MemoryMachine.TestCase
TestMemory.settings = lengths(examples=30, steps=30)
TestFiles = FilesMachine.TestCase
TestFiles.settings = lengths(examples=6, steps=20)
TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = lengths(examples=8, steps=25)
