"""holdfast through its public client at `durability="full"`, with and without declaring what was appended."""

from benchmarks.contenders.contender import Contender
from benchmarks.conversation import State, Step
from holdfast import Client

AGENT = "bench"
DURABILITY = "full"


class HoldfastUndeclared(Contender):
    """Every save is given the whole state; holdfast finds out by itself what is new."""

    key = "holdfast"
    title = "holdfast"
    writes_whole_states = False

    async def open(self) -> None:
        self.client = await Client.sqlite(self.path, durability=DURABILITY).__aenter__()

    async def close(self) -> None:
        await self.client.__aexit__(None, None, None)

    async def save(self, session: str, step: Step) -> str:
        return await self.client.save(agent_id=AGENT, execution_state=step.state, session_id=session)

    async def restore(self, session: str, checkpoint_id: str) -> State:
        return (await self.client.restore(checkpoint_id)).execution_state

    async def timeline(self, session: str, limit: int) -> int:
        return len(await self.client.timeline(agent_id=AGENT, session_id=session, limit=limit))

    async def durability(self) -> str:
        return f"wal/{DURABILITY.upper()}"


class HoldfastDeclared(HoldfastUndeclared):
    """The caller says which messages are new; the first save of a session brings the whole state."""

    key = "holdfast_declared"
    title = "holdfast, declared append"

    async def open(self) -> None:
        await super().open()
        self._started: set[str] = set()

    async def save(self, session: str, step: Step) -> str:
        if session not in self._started:
            self._started.add(session)
            return await super().save(session, step)
        return await self.client.save(
            agent_id=AGENT, execution_state=step.rest, append={"messages": step.added}, session_id=session
        )
