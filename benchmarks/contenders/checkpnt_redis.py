"""checkpnt on Redis, through its public client."""

from checkpnt import Client

from benchmarks.contenders.checkpnt_sqlite import CheckpntSqlite
from benchmarks.contenders.on_server import OnRedis


class CheckpntRedis(OnRedis, CheckpntSqlite):
    key = "checkpnt_redis"
    title = "checkpnt on Redis"

    async def open(self) -> None:
        self._client = Client.redis(self.server.url)
        self._heads: dict[str, str] = {}
