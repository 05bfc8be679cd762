"""The state of an agent or team as a checkpoint, and back, for saves by hand."""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.adapters.autogen.journal import TeamJournal
from holdfast.adapters.autogen.state import load_state, save_state
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.checkpoint_builder import CheckpointBuilder
from holdfast.model.framework import Framework

T = TypeVar("T")


async def extract(target: Any, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return the state of an agent or team that is not running, for `client.save_checkpoint`."""
    journal = TeamJournal(target)
    journal.find_agents()
    state = await save_state(journal, [])
    builder = CheckpointBuilder(agent_id, Framework.AUTOGEN).session(session_id).step(0, "extract")
    return builder.execution_state(state).context({} if context is None else context).build()


async def reconstruct(checkpoint: Checkpoint, target: T) -> T:
    """Load the state of a checkpoint into an agent or team, and return it.

    The checkpoint may be one of `extract`, or of a finished turn of `resumable`.
    """
    state = checkpoint.execution_state
    if not isinstance(state, dict) or "native" not in state:
        raise UsageError(
            f"checkpoint {checkpoint.checkpoint_id} has no state of AutoGen: it was saved by {checkpoint.framework}, or before "
            "the first turn was finished"
        )
    journal = TeamJournal(target)
    journal.find_agents()
    await load_state(journal, state)
    return target
