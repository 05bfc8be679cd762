"""The status of a run: one word, derived in one place, and the facts behind it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.model.checkpoint import Checkpoint


class RunState(StrEnum):
    """The status of a run. A session that was leased by hand, and by no run, is "stopped"."""

    RUNNING = "running"
    WAITING = "waiting"
    IN_DOUBT = "in doubt"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    COMPLETED = "completed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"


UNFINISHED = (RunState.RUNNING, RunState.WAITING, RunState.IN_DOUBT, RunState.INTERRUPTED)
"""The states of runs that have not ended."""


class RunFacts(NamedTuple):
    """What a status is derived from: the lease, how the last life ended, and what is pending.

    `ended` is how the last life ended, by its own record: "ready", "taken", "parked", "doubtful",
    "stopped", "failed" or "completed"; None without a record.
    """

    is_cancelled: bool
    has_lease: bool
    is_alive: bool
    ended: str | None
    is_waiting: bool  # for what it was parked for, or in its process
    is_doubtful: bool  # an effect that it stopped at is still in doubt
    is_worked: bool  # a worker is to carry it out
    approvals: int  # pending ones


def derive_state(facts: RunFacts) -> RunState:
    """Return the status of a run. The lease comes first: a record is about the past."""
    if facts.is_cancelled:
        return RunState.CANCELLED
    if facts.is_alive:
        return RunState.WAITING if facts.is_waiting else RunState.RUNNING
    if facts.has_lease:
        return RunState.INTERRUPTED
    if facts.ended == "failed":
        return RunState.FAILED
    if facts.approvals:
        return RunState.WAITING
    if facts.ended == "doubtful" and facts.is_doubtful:
        return RunState.IN_DOUBT
    if facts.ended == "completed":
        return RunState.COMPLETED
    if facts.ended is None:
        return RunState.STOPPED
    if facts.ended == "ready" or facts.is_worked or (facts.ended == "parked" and facts.is_waiting):
        return RunState.WAITING
    return RunState.INTERRUPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWait:
    """What a run waits for.

    `kind` is "approval", "timer", "retry", "worker", "join", "receive" or "message". `targets` are
    ids of approvals, sessions, or a topic.
    """

    kind: str
    targets: tuple[str, ...] = ()
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """The exception that ended a run: its class, message and step, and the end of its traceback."""

    error_type: str
    message: str
    step: str | None
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress that a run reported last with `run.progress`."""

    done: float
    total: float | None
    note: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A session that is or was leased, as runs are, or that waits for a worker.

    `status` is one of `RunState`. `head` is None before the first save. `holder` and `expires_at`
    are those of the lease, while it lives. `since` is when the run was taken or ended. `failure` is
    that of the last life, also while a retry is due. `attempts` counts its failed lives in a row.
    A `result` of a class that is not registered here is plain data.
    """

    session_id: str
    status: str
    head: Checkpoint | None
    saves: int
    approvals: int  # pending ones
    holder: str | None = None
    expires_at: datetime | None = None
    since: datetime | None = None
    waits: tuple[RunWait, ...] = ()
    in_doubt: tuple[str, ...] = ()  # effects
    failure: RunFailure | None = None
    attempts: int = 0
    result: Any = None
    function: str | None = None  # of runs that workers carry out
    version: str | None = None
    due: datetime | None = None
    progress: RunProgress | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended for good."""
        return self.status in (RunState.FAILED, RunState.COMPLETED, RunState.CANCELLED)
