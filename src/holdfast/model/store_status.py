"""The status of a store at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.checkpoint import Checkpoint

ALIVE, WAITING, STOPPED, CANCELLED = "alive", "waiting", "stopped", "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A session that is or was leased, as runs are.

    `status` is "alive" while a process holds the lease, "waiting" if none does and an approval is
    pending, else "stopped": it has ended, or waits to be resumed. "cancelled" ones are over.

    `head` is None before the first save. `holder` and `expires_at` are those of the lease, while it
    lives.
    """

    session_id: str
    status: str
    head: Checkpoint | None
    saves: int
    approvals: int  # pending ones
    holder: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The properties of a store, its size, and the runs in it. `saves` counts all saves ever made."""

    backend: str
    location: str
    durability: str
    sessions: int
    saves: int
    stored_bytes: int | None  # None if it was not requested
    approvals: int  # pending ones
    alive: tuple[RunStatus, ...]
