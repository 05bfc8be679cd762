"""The state machine over every backend. `HOLDFAST_SOAK=1` runs it longer."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from machine import StoreMachine

from servers.schemas import drop_schemas

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


class PostgresMachine(StoreMachine):
    kind = "postgres"


TestMemory = MemoryMachine.TestCase
TestMemory.settings = lengths(examples=30, steps=30)
TestFiles = FilesMachine.TestCase
TestFiles.settings = lengths(examples=6, steps=20)
TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = lengths(examples=8, steps=25)


@pytest.mark.servers
@pytest.mark.slow
class TestPostgres(PostgresMachine.TestCase):
    settings = lengths(examples=5, steps=20)

    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn: str) -> Iterator[None]:
        PostgresMachine.server = postgres_dsn
        yield
        drop_schemas(postgres_dsn)
