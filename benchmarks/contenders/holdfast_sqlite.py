"""holdfast through its public client at `durability="full"`, with and without declaring what was appended."""

import gc
import sqlite3
from pathlib import Path
from typing import Any

from benchmarks.contenders.contender import Contender, describe_durability
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
        """Asks the connections themselves: the client's word would prove nothing."""
        return durability_of(self.path)


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


def durability_of(path: Path) -> str:
    """What all connections that this process has to a database answer."""
    return ", ".join(sorted({_answer(one) for one in gc.get_objects() if _is_open_on(one, path)}))


def _is_open_on(candidate: Any, path: Path) -> bool:
    if not isinstance(candidate, sqlite3.Connection):
        return False
    try:
        return candidate.execute("PRAGMA database_list").fetchone()[2] == str(path.resolve())
    except sqlite3.ProgrammingError:
        return False


def _answer(connection: sqlite3.Connection) -> str:
    journal_mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return describe_durability(journal_mode, connection.execute("PRAGMA synchronous").fetchone()[0])
