"""Checkpoints of LangGraph as shown: by nodes that ran and by channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.langgraph import view
from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import HoldfastError
from holdfast.model.checkpoint import Checkpoint

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient


def list_nodes(client: SyncClient, checkpoint: Checkpoint) -> str:
    """Return the nodes that ran in the step before the checkpoint.

    It is "" if none did, LangGraph did not make the checkpoint, or its parent is gone.
    """
    if checkpoint.parent_id is None or not view.is_langgraph(checkpoint):
        return ""
    try:
        diff = client.diff(checkpoint.parent_id, checkpoint.checkpoint_id)
    except HoldfastError:
        return ""
    return ", ".join(escape(name, 40) for name in view.nodes(diff))
