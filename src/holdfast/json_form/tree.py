"""Trees of checkpoints, and damaged ones, as JSON."""

from __future__ import annotations

from typing import Any

from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.json_form.team import handoff_fields
from holdfast.model.listing import DamagedCheckpoint, Tree


def tree_fields(session_id: str, tree: Tree, damaged: list[DamagedCheckpoint], limit: int | None) -> dict[str, Any]:
    parents = tree.parents
    rows: list[dict[str, Any]] = [
        {**checkpoint_fields(entry), "nearest_parent_id": parents[entry.checkpoint_id], "lane": row.lane}
        for entry, row in zip(tree.entries[:limit], tree.lanes(), strict=False)
    ]
    handoffs = [handoff_fields(handoff) for handoff in tree.handoffs.values()]
    return {
        "session_id": session_id,
        "tree_id": tree.tree_id,
        "heads": dict(tree.heads),
        "handoffs": handoffs,
        "checkpoints": rows,
        "damaged": [damaged_fields(checkpoint) for checkpoint in damaged],
    }


def damaged_fields(checkpoint: DamagedCheckpoint) -> dict[str, Any]:
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "session_id": checkpoint.session_id,
        "sequence": checkpoint.sequence,
        "message": checkpoint.message,
    }
