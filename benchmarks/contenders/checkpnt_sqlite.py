"""checkpnt through its public client, at the durability it comes with."""

from checkpnt import Client, Framework

from benchmarks.contenders.contender import Contender, describe_durability
from benchmarks.conversation import State, Step

AGENT = "bench"


class CheckpntSqlite(Contender):
    key = "checkpnt"
    title = "checkpnt"
    writes_whole_states = True

    async def open(self) -> None:
        self._client = Client.sqlite(str(self.path))
        self._heads: dict[str, str] = {}

    async def close(self) -> None:
        await self._client.close()

    async def save(self, session: str, step: Step) -> str:
        self._heads[session] = await self._client.save(
            agent_id=AGENT,
            framework=Framework.CUSTOM,
            execution_state=step.state,
            session_id=session,
            parent_id=self._heads.get(session),
            step_index=step.number,
        )
        return self._heads[session]

    async def restore(self, session: str, checkpoint_id: str) -> State:
        return (await self._client.restore(checkpoint_id)).execution_state

    async def timeline(self, session: str, limit: int) -> int:
        return len(await self._client.timeline(AGENT, session, limit=limit))

    async def durability(self) -> str:
        connection = await self._client._backend._conn()
        async with connection.execute("PRAGMA journal_mode") as cursor:
            journal_mode = (await cursor.fetchone())[0]
        async with connection.execute("PRAGMA synchronous") as cursor:
            return describe_durability(journal_mode, (await cursor.fetchone())[0])
