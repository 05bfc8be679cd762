"""Checkpoints, sessions, tags and pins as JSON."""

from __future__ import annotations

from typing import Any

from holdfast.json_form.values import format_time, to_json
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.listing import Session
from holdfast.model.pin import Pin, Tag


def checkpoint_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields of a checkpoint: everything but the state."""
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "short_id": checkpoint.short_id,
        "session_id": checkpoint.session_id,
        "agent_id": checkpoint.agent_id,
        "parent_id": checkpoint.parent_id,
        "tree_id": checkpoint.tree_id,
        "sequence": checkpoint.sequence,
        "step_index": checkpoint.step_index,
        "step_name": checkpoint.step_name,
        "framework": str(checkpoint.framework),
        "created_at": format_time(checkpoint.created_at),
        "ttl_seconds": checkpoint.ttl_seconds,
        "expires_at": format_time(checkpoint.expires_at) if checkpoint.expires_at else None,
        "handoff_target": checkpoint.handoff_target,
        "handoff_schema": checkpoint.handoff_schema,
        "metadata": to_json(dict(checkpoint.metadata)),
        "tasks": to_json(checkpoint.tasks),
        "workspace": checkpoint.workspace,
        "app_version": checkpoint.app_version,
        "state_version": checkpoint.state_version,
        "schema_version": checkpoint.schema_version,
        "checksum": checkpoint.checksum,
    }


def session_fields(session: Session) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "agent_id": session.agent_id,
        "tree_id": session.tree_id,
        "saves": session.saves,
        "head": checkpoint_fields(session.head),
    }


def tag_fields(found: Tag) -> dict[str, Any]:
    return {"name": found.name, "checkpoint_id": found.checkpoint_id, "tagged_at": format_time(found.tagged_at)}


def pin_fields(found: Pin) -> dict[str, Any]:
    return {
        "checkpoint_id": found.checkpoint_id,
        "session_id": found.session_id,
        "pinned_at": format_time(found.pinned_at),
        "note": found.note,
    }
