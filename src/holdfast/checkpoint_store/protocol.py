"""The plain five-method store that agent loops with a pluggable store expect, over a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from holdfast.backends.bridge.step import run_inline
from holdfast.operations.validate import MAX_STEP

if TYPE_CHECKING:
    from holdfast.client.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata:
    """The metadata of a session's latest state; `timestamp` is ISO 8601 with milliseconds and Z."""

    session_id: str
    checkpoint_id: str
    timestamp: str
    step: int
    agent_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointData:
    metadata: CheckpointMetadata
    state: Any


@runtime_checkable
class CheckpointStore(Protocol):
    """One state per session, the latest. `load` and `load_metadata` give None where there is none."""

    async def save(self, session_id: str, state: Any) -> None: ...

    async def load(self, session_id: str) -> Any | None: ...

    async def load_metadata(self, session_id: str) -> CheckpointMetadata | None: ...

    async def delete(self, session_id: str) -> None: ...

    async def list(self) -> list[str]: ...


class ClientStore:
    """A `CheckpointStore` over a client. Each save is a checkpoint, so the history stays."""

    def __init__(self, client: Client, agent_id: str) -> None:
        self._client = client
        self._agent_id = agent_id

    async def save(self, session_id: str, state: Any) -> None:
        await self._client.save(
            agent_id=agent_of(state, self._agent_id),
            execution_state=state,
            session_id=session_id,
            step_index=step_of(state),
        )

    async def load(self, session_id: str) -> Any | None:
        checkpoint = await self._client.latest(session_id=session_id)
        return checkpoint.execution_state if checkpoint else None

    async def load_metadata(self, session_id: str) -> CheckpointMetadata | None:
        session = await self._client.session(session_id)
        if session is None:
            return None
        entry = session.head
        return CheckpointMetadata(
            session_id=session_id,
            checkpoint_id=entry.checkpoint_id,
            timestamp=entry.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            step=entry.step_index or 0,
            agent_id=entry.agent_id,
        )

    async def delete(self, session_id: str) -> None:
        """Expires everything of the session; of one that is not there, nothing."""
        for entry in await self._client.timeline(session_id=session_id, limit=None):
            await self._client.expire(entry.checkpoint_id)

    async def list(self) -> list[str]:
        return [session.session_id for session in await self._client.sessions()]


class SyncClientStore:
    """`ClientStore` without `await`."""

    def __init__(self, store: ClientStore) -> None:
        self._store = store

    def save(self, session_id: str, state: Any) -> None:
        run_inline(self._store.save(session_id, state))

    def load(self, session_id: str) -> Any | None:
        return run_inline(self._store.load(session_id))

    def load_metadata(self, session_id: str) -> CheckpointMetadata | None:
        return run_inline(self._store.load_metadata(session_id))

    def delete(self, session_id: str) -> None:
        run_inline(self._store.delete(session_id))

    def list(self) -> list[str]:
        return run_inline(self._store.list())


def agent_of(state: Any, default: str) -> str:
    """Return the agent that a state names (`state["metadata"]["agent_id"]`, or `agentId`)."""
    metadata = state.get("metadata") if isinstance(state, dict) else None
    named = (metadata.get("agent_id") or metadata.get("agentId")) if isinstance(metadata, dict) else None
    return named if isinstance(named, str) else default


def step_of(state: Any) -> int | None:
    """Return the step that a state names (`state["step"]`)."""
    step = state.get("step") if isinstance(state, dict) else None
    return step if isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= MAX_STEP else None
