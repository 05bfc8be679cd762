"""The contract on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sealed_backend import SealedBackend
from servers.schemas import drop_schemas, schema_name

from holdfast.backends.bridge.blocking import run_in_loop
from holdfast.backends.port import AnyBackend
from holdfast.testing import BackendContract

pytestmark = pytest.mark.servers


class TestPostgres(BackendContract):
    """Stepped on the thread that asks. Opening again is another handle: connections of its own, as
    another worker would have."""

    dsn: ClassVar[str]
    options: ClassVar[dict[str, object]] = {}

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _server(cls, postgres_dsn: str) -> Iterator[None]:
        cls.dsn = postgres_dsn
        yield
        drop_schemas(postgres_dsn)

    def open_backend(self, where: Path) -> AnyBackend:
        from holdfast.backends.postgres import open_postgres

        return open_postgres(self.dsn, schema=schema_name(where), **self.options)


@pytest.mark.slow
class TestPostgresInALoop(TestPostgres):
    """Its verbs awaited in an event loop."""

    def open_backend(self, where: Path) -> AnyBackend:
        return run_in_loop(super().open_backend(where))


@pytest.mark.slow
class TestSealedPostgres(TestPostgres):
    def open_backend(self, where: Path) -> Any:
        return SealedBackend(super().open_backend(where))


class _PlainWay(TestPostgres):
    """The plain way: every commit by the general function."""

    __test__ = False

    @pytest.fixture(autouse=True)
    def _without_fast_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from holdfast.backends import simple_commit

        monkeypatch.setattr(simple_commit, "USE_SIMPLE", False)


@pytest.mark.slow
class TestPostgresPlainWay(_PlainWay):
    __test__ = True


@pytest.mark.slow
class TestPostgresPlainWayInALoop(_PlainWay):
    __test__ = True

    def open_backend(self, where: Path) -> AnyBackend:
        return run_in_loop(super().open_backend(where))


@pytest.mark.slow
class TestPostgresFast(TestPostgres):
    options: ClassVar[dict[str, object]] = {"durability": "fast", "max_connections": 1}


@pytest.mark.slow
class TestPostgresBehindPgbouncer(TestPostgres):
    """In transaction mode: two calls, even of one handle, are on two connections to the server."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _server(cls, pgbouncer_dsn: str, postgres_dsn: str) -> Iterator[None]:
        cls.dsn = pgbouncer_dsn
        yield
        drop_schemas(postgres_dsn)
