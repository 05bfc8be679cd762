"""Fixtures: one server of each kind for a test process, started when the first test asks for it.

Under pytest-xdist every worker has its own: it takes a second of CPU, and no worker has to outlive another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from servers.running import ServerUnavailable
from servers.schemas import drop_schemas, schema_name

if TYPE_CHECKING:
    from servers.valkey import ValkeyCluster


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """Where there is a PostgreSQL. Tests share it: each takes a schema of its own (`fresh_schema`)."""
    given = os.environ.get("HOLDFAST_TEST_POSTGRES")
    if given:
        yield given
        return
    from servers.postgres import Postgres

    try:
        server = Postgres()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield server.dsn
    server.stop()


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Where there is a Redis or Valkey. Tests share it: each takes a prefix of its own."""
    given = os.environ.get("HOLDFAST_TEST_REDIS")
    if given:
        yield given
        return
    from servers.valkey import Valkey

    try:
        server = Valkey()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield server.url
    server.stop()


@pytest.fixture
def postgres_url(postgres_dsn: str, tmp_path: Path) -> Iterator[str]:
    """A store in a schema that is this test's own, not made yet."""
    separator = "&" if "?" in postgres_dsn else "?"
    yield f"{postgres_dsn}{separator}schema={schema_name(tmp_path)}"
    drop_schemas(postgres_dsn)


@pytest.fixture(scope="session")
def pgbouncer_dsn(postgres_dsn: str) -> Iterator[str]:
    """The same PostgreSQL, behind a pgbouncer."""
    from servers.pgbouncer import Pgbouncer

    try:
        server = Pgbouncer(postgres_dsn)
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield server.dsn
    server.stop()


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[ValkeyCluster]:
    """A cluster of six nodes."""
    from servers.valkey import ValkeyCluster

    try:
        cluster = ValkeyCluster()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield cluster
    cluster.stop()
