"""A handoff to claim, and its entry in the inbox."""

from __future__ import annotations

from holdfast import Handoff, SyncClient


def offered(client: SyncClient, session_id: str = "s", target: str = "b") -> str:
    return client.handoff(client.save("a", execution_state={"n": 1}, session_id=session_id), target)


def entry(client: SyncClient, handoff_id: str, agent_id: str = "b") -> Handoff:
    [found] = [one for one in client.inbox(agent_id, include_claimed=True) if one.handoff_id == handoff_id]
    return found
