"""`CheckpointBuilder`: builds a checkpoint piece by piece, for `client.save_checkpoint`."""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


class CheckpointBuilder:
    """A builder of checkpoints.

    Each method sets one thing and returns the builder; `build` returns the checkpoint.

    >>> checkpoint = CheckpointBuilder("writer", "custom").session("run-1").step(3, "draft").build()
    """

    def __init__(self, agent_id: str, framework: Framework | str = Framework.CUSTOM) -> None:
        self._fields: dict[str, Any] = {"agent_id": agent_id, "framework": Framework.of(framework)}
        self._metadata: dict[str, Any] = {}

    def session(self, session_id: str) -> CheckpointBuilder:
        return self._set(session_id=session_id)

    def parent(self, parent_id: str | None) -> CheckpointBuilder:
        return self._set(parent_id=parent_id)

    def step(self, index: int, name: str | None = None) -> CheckpointBuilder:
        return self._set(step_index=index, step_name=name)

    def execution_state(self, state: Any) -> CheckpointBuilder:
        return self._set(execution_state=state)

    def context(self, context: Any) -> CheckpointBuilder:
        return self._set(agent_context=context)

    def tag(self, **metadata: Any) -> CheckpointBuilder:
        """Add metadata; another call adds more."""
        self._metadata.update(metadata)
        return self

    def ttl(self, seconds: float | None) -> CheckpointBuilder:
        if seconds is not None and seconds <= 0:
            raise UsageError(f"ttl is {seconds!r}: it must be positive. Leave it out to keep the checkpoint")
        return self._set(ttl_seconds=seconds)

    def handoff(self, target_agent_id: str, schema: str | None = None) -> CheckpointBuilder:
        return self._set(handoff_target=target_agent_id, handoff_schema=schema)

    def tasks(self, tasks: Any) -> CheckpointBuilder:
        return self._set(tasks=tasks)

    def workspace(self, reference: str) -> CheckpointBuilder:
        """Set an opaque reference to a workspace snapshot, of holdfast or of a sandbox service."""
        return self._set(workspace=reference)

    def app_version(self, version: str) -> CheckpointBuilder:
        return self._set(app_version=version)

    def state_version(self, version: int) -> CheckpointBuilder:
        """Set the version of the state's own schema (see `holdfast.migration`)."""
        return self._set(state_version=version)

    def build(self) -> Checkpoint:
        fields = {"session_id": str(uuid.uuid4())} | self._fields
        return Checkpoint(
            checkpoint_id=ids.to_text(ids.make(time.time_ns() // 1_000_000, 0, os.urandom(8))),
            metadata=dict(self._metadata),
            **fields,
        )

    def _set(self, **fields: Any) -> CheckpointBuilder:
        self._fields.update(fields)
        return self
