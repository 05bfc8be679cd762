"""Reports of cancellations: each session that was reached, and what stays done in the world."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.effect import EffectRecord

RUNNING, IDLE, UNCLAIMED, ANSWERED, CANCELLED = "running", "idle", "unclaimed", "answered", "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledSession:
    """A session that a cancellation reached, as it was before.

    `status` is "running" while a worker held it, whom `holder` names; "idle"; "unclaimed" for
    delegated work that no worker had begun; "answered" for finished work, which is left alone; or
    "cancelled" if it was so already. `effects` stay done, the outcome of `unknown` is not known.
    """

    session_id: str
    parent_id: str | None
    depth: int
    agent_id: str | None
    status: str
    holder: str | None = None
    effects: tuple[EffectRecord, ...] = ()
    unknown: tuple[EffectRecord, ...] = ()
    approvals_voided: int = 0

    @property
    def undos(self) -> tuple[EffectRecord, ...]:
        """The effects that have a compensation, which was not run."""
        return tuple(effect for effect in self.effects if effect.undoable)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReport:
    """The result of a cancellation, or of its dry run: the session, then its delegations, depth first."""

    session_id: str
    by: str
    reason: str
    dry_run: bool
    sessions: tuple[CancelledSession, ...]

    @property
    def unclaimed(self) -> tuple[CancelledSession, ...]:
        """The delegations that no worker had begun."""
        return tuple(session for session in self.sessions if session.status == UNCLAIMED)

    @property
    def effects(self) -> tuple[EffectRecord, ...]:
        return tuple(effect for session in self.sessions for effect in session.effects)

    @property
    def unknown(self) -> tuple[EffectRecord, ...]:
        return tuple(effect for session in self.sessions for effect in session.unknown)

    @property
    def undos(self) -> tuple[EffectRecord, ...]:
        return tuple(effect for session in self.sessions for effect in session.undos)
