"""The context of a workflow as a checkpoint of the store, and back, for saves by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workflows import Context, Workflow
from workflows.context.context_types import SerializedContext

from holdfast.adapters.base.manual import build_checkpoint, open_state
from holdfast.adapters.llama_index.values import (
    DeclaredTypes,
    load_broker,
    load_state,
    plain_values,
    split_messages,
)
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


def extract(native: Context[Any], *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return a workflow's context, such as `handler.ctx`, as a checkpoint for `client.save_checkpoint`.

    It has the state; of a run under way or waiting, also its work in progress.
    """
    if not isinstance(native, Context):
        raise UsageError(f"extract() takes a Context, such as handler.ctx, not a {type(native).__name__}")
    data = native.to_dict()
    state = _split_state(data.pop("state"))
    if data["is_running"]:
        state["context"] = plain_values(data)
    return build_checkpoint(Framework.LLAMA_INDEX, state, agent_id=agent_id, session_id=session_id, context=context)


def reconstruct(checkpoint: Checkpoint, target: Workflow) -> Context[Any]:
    """Return the context to call `workflow.run(ctx=...)` with.

    A run that was under way continues, and needs no other argument. Its steps that were under way
    run again.
    """
    if not isinstance(target, Workflow):
        raise UsageError(f"reconstruct() takes the Workflow that continues, not a {type(target).__name__}")
    data: Mapping[str, Any] = SerializedContext().model_dump(mode="python")
    with open_state(checkpoint, Framework.LLAMA_INDEX, "state") as saved:
        if "context" in saved:
            data = load_broker(saved["context"], target)
        data = {**data, "state": load_state(saved) or {}}
        return Context.from_dict(target, dict(data), serializer=DeclaredTypes.of(target))


def _split_state(serialized: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a serialized context, whose values are JSON texts, as plain data."""
    data = serialized.get("state_data") or {"_data": {}}
    try:
        if isinstance(data, str):
            return split_messages(json.loads(data))
        return split_messages({"value": {name: json.loads(value) for name, value in data["_data"].items()}})
    except ValueError as error:
        raise UsageError(
            "the state of the context is no JSON, but pickled: the store keeps plain data only, and executes none of "
            "it. Give the workflow a JsonSerializer(allowed_types=[...])"
        ) from error
