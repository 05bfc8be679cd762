"""The state machine on Redis, with one shard and with four."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from machine import StoreMachine
from machine_lengths import TIMEOUT, long
from servers.prefixes import delete_prefixes

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]


class RedisMachine(StoreMachine):
    kind = "redis"


class ShardsMachine(StoreMachine):
    kind = "redis:4"


@pytest.fixture(autouse=True, scope="module")
def _server(redis_url: str) -> Iterator[None]:
    RedisMachine.server = ShardsMachine.server = redis_url
    yield
    delete_prefixes(redis_url)


TestRedis = RedisMachine.TestCase
TestRedis.settings = long(examples=4, steps=20)
TestShards = ShardsMachine.TestCase
TestShards.settings = long(examples=4, steps=20)
