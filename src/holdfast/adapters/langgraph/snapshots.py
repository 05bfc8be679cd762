"""`LangGraphAdapter`: a graph's snapshot as a checkpoint of holdfast's, and back, for saving by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.adapters.langgraph.types import register_known
from holdfast.codec.types import default_types
from holdfast.errors import UsageError
from holdfast.model.builder import CheckpointBuilder
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


class Reconstructed(NamedTuple):
    """What a graph goes on from: `graph.update_state(config, values)`, and the nodes that were to run next."""

    values: Any
    next: tuple[str, ...]
    config: dict[str, Any]


class LangGraphAdapter:
    """Turns `graph.get_state(config)` into a checkpoint for `client.save_checkpoint`, and what was restored back into
    the values, next nodes and config. Messages are given back as they were: making one of these registers LangChain's
    and LangGraph's own classes with `holdfast.register`."""

    def __init__(self) -> None:
        register_known(default_types)

    def extract(
        self, state_snapshot: Any, *, agent_id: str, context: Any = None, session_id: str | None = None
    ) -> Checkpoint:
        """The snapshot as a checkpoint. The session is the thread's name, if none is given."""
        configurable = (state_snapshot.config or {}).get("configurable") or {}
        session = session_id if session_id is not None else configurable.get("thread_id")
        if session is None:
            raise UsageError("the snapshot's config names no thread_id: give session_id=")
        metadata = dict(state_snapshot.metadata or {})
        plain = {name: value for name, value in configurable.items() if isinstance(value, str | int)}
        state = {
            "values": state_snapshot.values,
            "next": tuple(state_snapshot.next),
            "config": {"configurable": plain},
            "metadata": metadata,
            "interrupts": tuple(state_snapshot.interrupts),
        }
        step = metadata.get("step")
        return (
            CheckpointBuilder(agent_id, Framework.LANGGRAPH)
            .session(str(session))
            .step(max(step, -1) + 1 if isinstance(step, int) else 0, metadata.get("source"))
            .execution_state(state)
            .context({} if context is None else context)
            .build()
        )

    def reconstruct(self, checkpoint: Checkpoint) -> Reconstructed:
        state = checkpoint.execution_state
        if not isinstance(state, dict) or not {"values", "next", "config"} <= state.keys():
            raise UsageError(
                f"checkpoint {checkpoint.checkpoint_id} was not made by LangGraphAdapter.extract: it has no values, next "
                "and config"
            )
        return Reconstructed(state["values"], tuple(state["next"]), state["config"])
