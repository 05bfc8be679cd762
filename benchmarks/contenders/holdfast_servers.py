"""holdfast through its public client, on a Valkey and on a PostgreSQL."""

from benchmarks.contenders.holdfast_sqlite import HoldfastDeclared, HoldfastUndeclared
from benchmarks.contenders.on_server import OnPostgres, OnRedis
from holdfast import Client


class HoldfastRedis(OnRedis, HoldfastUndeclared):
    key = "holdfast_redis"
    title = "holdfast on Redis"

    async def open(self) -> None:
        self.client = await Client.redis(self.server.url).__aenter__()


class HoldfastRedisDeclared(OnRedis, HoldfastDeclared):
    key = "holdfast_redis_declared"
    title = "holdfast on Redis, declared append"

    async def open(self) -> None:
        self._started: set[str] = set()
        self.client = await Client.redis(self.server.url).__aenter__()


class HoldfastPostgres(OnPostgres, HoldfastUndeclared):
    key = "holdfast_postgres"
    title = "holdfast on PostgreSQL"

    async def open(self) -> None:
        self.client = await Client.postgres(self.server.dsn).__aenter__()


class HoldfastPostgresDeclared(OnPostgres, HoldfastDeclared):
    key = "holdfast_postgres_declared"
    title = "holdfast on PostgreSQL, declared append"

    async def open(self) -> None:
        self._started: set[str] = set()
        self.client = await Client.postgres(self.server.dsn).__aenter__()
