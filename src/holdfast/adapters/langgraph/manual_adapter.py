"""`LangGraphAdapter`: a graph's snapshot as a holdfast checkpoint, and back, for saves by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.adapters.langgraph.allowed_types import register_known
from holdfast.codec.registry import default_types
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.checkpoint_builder import CheckpointBuilder
from holdfast.model.framework import Framework


class ReconstructedGraph(NamedTuple):
    """A graph's restored values, next nodes and config.

    `graph.update_state(config, values)` applies them. The fields are attributes and keys alike:
    `restored.next` is `restored["next"]`.
    """

    values: Any
    next: tuple[str, ...]
    config: dict[str, Any]
    metadata: dict[str, Any]
    thread_id: str | None
    checkpoint_id: str
    agent_context: Any

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._fields:
                raise KeyError(key)
            return getattr(self, key)
        return tuple.__getitem__(self, key)


class LangGraphAdapter:
    """A converter between `graph.get_state(config)` and a checkpoint for `client.save_checkpoint`.

    It turns a restored checkpoint back into the values, next nodes and config. Messages come back
    as they were: making an adapter registers LangChain's and LangGraph's own classes with
    `holdfast.register`.
    """

    def __init__(self) -> None:
        register_known(default_types)

    def extract(
        self,
        state_snapshot: Any,
        agent_id: str,
        session_id: str | None = None,
        parent_id: str | None = None,
        step_index: int | None = None,
        step_name: str | None = None,
        context: Any = None,
        ttl_seconds: float | None = None,
        **metadata: Any,
    ) -> Checkpoint:
        """Return the snapshot, or a dict with its fields, as a checkpoint.

        By default, the session is the thread's name, and the step is LangGraph's. Extra keywords
        are metadata.
        """
        snapshot = _fields_of(state_snapshot)
        configurable = (snapshot["config"] or {}).get("configurable") or {}
        session = session_id if session_id is not None else configurable.get("thread_id")
        if session is None:
            raise UsageError("the snapshot's config names no thread_id: give session_id=")
        about = dict(snapshot["metadata"] or {})
        plain = {name: value for name, value in configurable.items() if isinstance(value, str | int)}
        state = {
            "values": snapshot["values"],
            "next": tuple(snapshot["next"] or ()),
            "config": {"configurable": plain},
            "metadata": about,
            "interrupts": tuple(snapshot["interrupts"] or ()),
        }
        step = about.get("step")
        if step_index is None:
            step_index = max(step, -1) + 1 if isinstance(step, int) else 0
        return (
            CheckpointBuilder(agent_id, Framework.LANGGRAPH)
            .session(str(session))
            .parent(parent_id)
            .step(step_index, about.get("source") if step_name is None else step_name)
            .execution_state(state)
            .context({} if context is None else context)
            .ttl(ttl_seconds)
            .tag(**metadata)
            .build()
        )

    def reconstruct(self, checkpoint: Checkpoint) -> ReconstructedGraph:
        state = checkpoint.execution_state
        if not isinstance(state, dict) or not {"values", "next", "config"} <= state.keys():
            raise UsageError(
                f"checkpoint {checkpoint.checkpoint_id} was not made by LangGraphAdapter.extract: it has no values, "
                "next and config"
            )
        return ReconstructedGraph(
            values=state["values"],
            next=tuple(state["next"]),
            config=state["config"],
            metadata=state.get("metadata", {}),
            thread_id=(state["config"].get("configurable") or {}).get("thread_id"),
            checkpoint_id=checkpoint.checkpoint_id,
            agent_context=checkpoint.agent_context,
        )


def _fields_of(snapshot: Any) -> dict[str, Any]:
    names = ("values", "next", "config", "metadata", "interrupts")
    if isinstance(snapshot, Mapping):
        return {name: snapshot.get(name) for name in names}
    return {name: getattr(snapshot, name, None) for name in names}
