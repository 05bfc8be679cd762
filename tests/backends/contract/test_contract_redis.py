"""The contract on Redis or Valkey: one shard, several shards on one server, and a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from sealed_backend import SealedBackend
from servers.valkey import ValkeyCluster

from holdfast.backends.bridge.blocking import run_in_loop
from holdfast.backends.port import AsyncBackend
from holdfast.backends.redis import connection, open_redis
from holdfast.testing import BackendContract

pytestmark = pytest.mark.servers


class TestRedis(BackendContract):
    """Opening again is another handle: connections of its own, as another worker would have."""

    url: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _server(cls, redis_url: str) -> None:
        cls.url = redis_url

    def open_backend(self, where: Path) -> AsyncBackend:
        return open_redis(self.url, prefix=where.name, **self.options)


@pytest.mark.slow
class TestRedisThroughRedisPy(TestRedis):
    """The plain way: without the fast path of `connection.py`."""

    @pytest.fixture(autouse=True)
    def _without_pipeline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "USE_PIPELINE", False)


class TestRedisInALoop(TestRedis):
    """As the async client asks it: the suite itself has no event loop, and asks on its own thread otherwise."""

    options: ClassVar[dict[str, Any]] = {"shards": 3}

    def open_backend(self, where: Path) -> Any:
        return run_in_loop(super().open_backend(where))


@pytest.mark.slow
class TestSealedRedis(TestRedis):
    options: ClassVar[dict[str, Any]] = {"shards": 5}

    def open_backend(self, where: Path) -> Any:
        return SealedBackend(super().open_backend(where))


class TestRedisShards(TestRedis):
    options: ClassVar[dict[str, Any]] = {"shards": 5, "max_connections": 1}


class TestRedisCluster(TestRedis):
    """Six nodes, sixteen shards."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _server(cls, redis_cluster: ValkeyCluster) -> None:
        cls.url = redis_cluster.url
