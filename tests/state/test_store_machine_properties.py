"""The state machine over every backend: shortly in each run, longer among the slow tests, much longer in a soak."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from examples import examples
from hypothesis.stateful import rule
from machine import StoreMachine
from machine_base import WHO
from machine_lengths import TIMEOUT, long, short
from servers.schemas import drop_schemas

pytestmark = pytest.mark.timeout(TIMEOUT)


class MemoryMachine(StoreMachine):
    kind = "memory"


class FilesMachine(StoreMachine):
    kind = "files"


class SqliteMachine(StoreMachine):
    kind = "sqlite"


class SealedMachine(StoreMachine):
    """A store whose data gets new keys now and then; the other client has the old ones."""

    @rule(who=WHO)
    def rekey(self, who: int) -> None:
        before = self.clients[who].key_status().epoch
        status = self.clients[who].rekey(data=True)
        assert (status.epoch, status.is_resealing) == (before + 1, False)


class SealedMemoryMachine(SealedMachine):
    kind = "memory+sealed"


class SealedSqliteMachine(SealedMachine):
    kind = "sqlite+sealed"


class SealedFilesMachine(SealedMachine):
    kind = "files+sealed"


class SealedPostgresMachine(SealedMachine):
    kind = "postgres+sealed"


class PostgresMachine(StoreMachine):
    kind = "postgres"


class TestMemory(MemoryMachine.TestCase):
    settings = short(examples=examples(50), steps=35)


class TestFiles(FilesMachine.TestCase):
    settings = short(examples=examples(6, least=2), steps=20)


class TestSqlite(SqliteMachine.TestCase):
    settings = short(examples=examples(8, least=2), steps=25)


class TestSealedMemory(SealedMemoryMachine.TestCase):
    settings = short(examples=examples(25), steps=35)


class TestSealedSqlite(SealedSqliteMachine.TestCase):
    settings = short(examples=examples(6, least=2), steps=25)


@pytest.mark.slow
class TestSealedSqliteForLong(SealedSqliteMachine.TestCase):
    settings = long(examples=40, steps=50)


@pytest.mark.slow
class TestSealedFiles(SealedFilesMachine.TestCase):
    settings = long(examples=5, steps=20)


@pytest.mark.slow
class TestMemoryForLong(MemoryMachine.TestCase):
    settings = long(examples=200, steps=50)


@pytest.mark.slow
class TestFilesForLong(FilesMachine.TestCase):
    settings = long(examples=30, steps=50)


@pytest.mark.slow
class TestSqliteForLong(SqliteMachine.TestCase):
    settings = long(examples=40, steps=50)


@pytest.mark.servers
@pytest.mark.slow
class TestPostgres(PostgresMachine.TestCase):
    settings = long(examples=5, steps=20)

    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn: str) -> Iterator[None]:
        PostgresMachine.server = postgres_dsn
        yield
        drop_schemas(postgres_dsn)


@pytest.mark.servers
@pytest.mark.slow
class TestSealedPostgres(SealedPostgresMachine.TestCase):
    settings = long(examples=3, steps=20)

    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn: str) -> Iterator[None]:
        SealedPostgresMachine.server = postgres_dsn
        yield
        drop_schemas(postgres_dsn)
