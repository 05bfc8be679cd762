"""`HoldfastCheckpointStorage`: the framework's own checkpoint storage over a store of holdfast."""

from __future__ import annotations

from typing import Any

from agent_framework import WorkflowCheckpoint
from agent_framework.exceptions import WorkflowCheckpointException

from holdfast.adapters.agent_framework.values import dump_checkpoint, load_checkpoint
from holdfast.adapters.base.store_access import SeamStore
from holdfast.model.framework import Framework

_ID = "workflow_checkpoint_id"


class HoldfastCheckpointStorage:
    """A `CheckpointStorage` for `WorkflowBuilder(..., checkpoint_storage=...)`, without pickle.

    The checkpoints of a workflow are those of one session, by default the workflow's name. Objects
    of your own classes need `holdfast.register`. `store` is a `Client`, a URL, or None for
    `.holdfast/store.db`; a store that was opened here is closed by `close`.
    """

    def __init__(self, *, store: Any = None, session_id: str | None = None) -> None:
        self._store = SeamStore(store)
        self._session_id = session_id
        self._sessions: set[str] = set() if session_id is None else {session_id}

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        session_id = self._session_of(checkpoint.workflow_name)
        await self._store.client.save(
            agent_id=checkpoint.workflow_name,
            framework=Framework.AGENT_FRAMEWORK,
            session_id=session_id,
            step_name=f"superstep {checkpoint.iteration_count}",
            execution_state={"checkpoint": dump_checkpoint(checkpoint)},
            **{_ID: checkpoint.checkpoint_id, "workflow_name": checkpoint.workflow_name},
        )
        return str(checkpoint.checkpoint_id)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        found = await self._find(checkpoint_id)
        if found is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        return await self._restore(found)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        return [await self._restore(entry) for entry in await self._entries(workflow_name)]

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [entry.metadata[_ID] for entry in await self._entries(workflow_name)]

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        entries = await self._entries(workflow_name)
        return await self._restore(entries[-1]) if entries else None

    async def delete(self, checkpoint_id: str) -> bool:
        found = await self._find(checkpoint_id)
        return False if found is None else bool(await self._store.client.expire(found.checkpoint_id))

    async def close(self) -> None:
        await self._store.aclose()

    # -- entries -------------------------------------------------------------------------------------------------------

    def _session_of(self, workflow_name: str) -> str:
        return self._session_id or workflow_name

    async def _entries(self, workflow_name: str) -> list[Any]:
        """Return a workflow's checkpoints without their states, oldest first, each in its newest form."""
        listed = await self._store.client.timeline(self._session_of(workflow_name), limit=None)
        known: dict[str, Any] = {}
        for entry in reversed(listed):
            if entry.metadata.get("workflow_name") == workflow_name and _ID in entry.metadata:
                known.pop(entry.metadata[_ID], None)
                known[entry.metadata[_ID]] = entry
        return list(known.values())

    async def _find(self, checkpoint_id: str) -> Any:
        client = self._store.client
        sessions = [self._session_id] if self._session_id else await client.session_ids()
        for session_id in sessions:
            for entry in await client.timeline(session_id, limit=None):
                if entry.metadata.get(_ID) == checkpoint_id:
                    return entry
        return None

    async def _restore(self, entry: Any) -> WorkflowCheckpoint:
        checkpoint = await self._store.client.restore(entry.checkpoint_id)
        return load_checkpoint(checkpoint.execution_state["checkpoint"])
