"""Handoffs as an inbox lists them: each with its state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.model import ids
from holdfast.model.checkpoint import Checkpoint


class HandoffStatus(StrEnum):
    OPEN = "open"  # unclaimed: offered, or given back
    TIMED_OUT = "timed out"  # its claimant's lease ran out, or its process died, before anything was saved
    CLAIMED = "claimed"  # a claim is in force
    TAKEN_UP = "taken up"  # its claimant, or its target, saved a checkpoint that follows it
    PASSED_ON = "passed on"  # handed on to another agent as it was
    ANSWERED = "answered"  # of a delegation: its worker has given its result, or its failure
    CANCELLED = "cancelled"  # its session was cancelled before it ended


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Handoff:
    """A checkpoint that is addressed to an agent. `checkpoint` is that checkpoint, without its state.

    `by` and `since` say who claimed it or continued from it, and when. `next_id` is the checkpoint
    that followed; of a handoff that was passed on, the new handoff; of a delegation, the answer.
    `delegated_by` is the session that delegated it, None if it was handed over.
    """

    checkpoint: Checkpoint
    status: HandoffStatus
    by: str | None = None
    since: datetime | None = None
    next_id: str | None = None
    delegated_by: str | None = None

    @property
    def handoff_id(self) -> str:
        return self.checkpoint.checkpoint_id

    @property
    def session_id(self) -> str:
        return self.checkpoint.session_id

    @property
    def from_agent_id(self) -> str:
        return self.checkpoint.agent_id

    @property
    def target_agent_id(self) -> str:
        return self.checkpoint.handoff_target or ""

    @property
    def schema(self) -> str | None:
        return self.checkpoint.handoff_schema

    @property
    def offered_at(self) -> datetime:
        return self.checkpoint.created_at

    @property
    def can_be_claimed(self) -> bool:
        return self.status in (HandoffStatus.OPEN, HandoffStatus.TIMED_OUT)

    def __repr__(self) -> str:
        by = f" by {self.by!r:.60}" if self.by else ""
        return (
            f"<Handoff {ids.short(self.handoff_id)} {self.from_agent_id!r:.60} → "
            f"{self.target_agent_id!r:.60} {self.status}"
            f"{by} {self.offered_at:%Y-%m-%d %H:%M:%S}>"
        )
