"""What goes on in a store, at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.checkpoint import Checkpoint

ALIVE, WAITING, STOPPED = "alive", "waiting", "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A session that is or was worked on under a lease, as runs are. `status` is "alive" while a process holds it, "waiting"
    if nobody does and an approval of it is pending, else "stopped": it has ended, or waits to be resumed.

    `head` is None before anything was saved. `holder` and `expires_at` are those of the lease, while it lives.
    """

    session_id: str
    status: str
    head: Checkpoint | None
    saves: int
    approvals: int  # that wait for a decision
    holder: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What a store is, how much it takes, and who is at work in it. `saves` counts all that were ever made."""

    backend: str
    location: str
    durability: str
    sessions: int
    saves: int
    stored_bytes: int | None  # None if it was not asked for
    approvals: int  # that wait for a decision
    alive: tuple[RunStatus, ...]
