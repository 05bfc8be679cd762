"""The floor on Redis: one SET of ready-made bytes by redis-py, each under a key of its own. Encodes
and checks nothing."""

from redis.asyncio import Redis

from benchmarks.contenders.on_server import OnRedis
from benchmarks.conversation import State, Step, compact_json


class RawRedis(OnRedis):
    key = "raw_set"
    title = "raw SET of the same bytes"
    writes_whole_states = True

    async def open(self) -> None:
        self._redis = Redis.from_url(self.server.url)
        self._ready: dict[str, bytes] = {}
        self._number = 0

    async def close(self) -> None:
        await self._redis.aclose()

    async def save(self, session: str, step: Step) -> str:
        """The bytes of the session's first state: making them is not what is measured."""
        data = self._ready.get(session)
        if data is None:
            data = self._ready[session] = compact_json(step.state)
        self._number += 1
        key = f"{session}:{self._number}"
        await self._redis.set(key, data)
        return key

    async def restore(self, session: str, checkpoint_id: str) -> State:
        raise NotImplementedError  # only saves are measured

    async def timeline(self, session: str, limit: int) -> int:
        raise NotImplementedError  # only saves are measured
