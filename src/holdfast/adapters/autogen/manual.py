"""The state of an agent or team as a checkpoint, and back, for saves by hand."""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.adapters.autogen.journal import TeamJournal
from holdfast.adapters.autogen.state import load_state, save_state
from holdfast.adapters.base.manual import build_checkpoint, read_state
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework

T = TypeVar("T")


async def extract(native: Any, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return the state of an agent or team that is not running, for `client.save_checkpoint`."""
    journal = TeamJournal(native)
    journal.find_agents()
    state = {"messages": [], **await save_state(journal, [], [])}
    return build_checkpoint(Framework.AUTOGEN, state, agent_id=agent_id, session_id=session_id, context=context)


async def reconstruct(checkpoint: Checkpoint, target: T) -> T:
    """Load the state of a checkpoint into an agent or team, and return it.

    The checkpoint may be one of `extract`, or of a finished turn of `resumable`.
    """
    journal = TeamJournal(target)
    journal.find_agents()
    await load_state(journal, read_state(checkpoint, Framework.AUTOGEN, "native", "messages"))
    return target
