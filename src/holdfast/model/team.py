"""Teams: sessions that delegate and hand over work, who holds them, and who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.handoff import Handoff
from holdfast.model.message import GroupStatus

RUNNING, IDLE, CANCELLED = "running", "idle", "cancelled"
OFFERED, NOT_MADE, ABANDONED, ANSWERED = "offered", "not made", "abandoned", "answered"
UNSERVED = (IDLE, OFFERED, NOT_MADE, ABANDONED)  # of delegated work: no worker has it


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamWait:
    """A wait of more than a second: of which session, for what, since when, and until when at most.

    `kind` is "join" or "approval", "receive" or "message"; `targets` are sessions, an approval's id,
    or a topic. `unserved` are the sessions among them that no live worker has.
    """

    session_id: str
    kind: str
    targets: tuple[str, ...]
    since: datetime
    until: datetime | None
    unserved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamMember:
    """A session of a team.

    `status` is "running" while a live process holds it, whom `holder` names, "idle", or
    "cancelled". Delegated work is also "offered", "abandoned" by a worker that died or gave it
    back, "answered", or "not made" yet. `handoffs` are those of its session.
    """

    session_id: str
    parent_id: str | None
    depth: int
    agent_id: str | None
    status: str
    holder: str | None = None
    since: datetime | None = None
    handoff_id: str | None = None
    handoffs: tuple[Handoff, ...] = ()
    waits: tuple[TeamWait, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A session and the work that it delegated, at any depth. `origins` leads up to who delegated it.

    `groups` consume the topics that its sessions have lately published to, consumed or waited for.
    """

    session_id: str
    origins: tuple[str, ...]
    members: tuple[TeamMember, ...]
    groups: tuple[GroupStatus, ...] = ()

    @property
    def waits(self) -> tuple[TeamWait, ...]:
        return tuple(wait for member in self.members for wait in member.waits)

    @property
    def unserved(self) -> tuple[TeamWait, ...]:
        """The waits for work that no live worker has."""
        return tuple(wait for wait in self.waits if wait.unserved)
