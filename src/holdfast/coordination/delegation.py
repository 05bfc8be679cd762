"""Delegated work, as the run that delegated and joins it sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.backends.port import RowKey
from holdfast.coordination.contract import Contract
from holdfast.format.rows import inbox
from holdfast.model import ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """One item of work that was delegated to an agent, in a session of its own."""

    session_id: str
    agent_id: str
    handoff_id: str
    item: Any = None
    returns: Contract[Any] | None = field(default=None, repr=False, compare=False)

    @property
    def ended_key(self) -> RowKey:
        """The row that says how it ended, once it has."""
        offer = ids.from_text(self.handoff_id)
        return inbox.key_of(self.agent_id, offer, offer, inbox.DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationResult:
    """The result of one delegation, as the class of its contract."""

    delegation: Delegation
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationFailure:
    """The failure of one delegation: "failed" by its worker, or "cancelled"."""

    delegation: Delegation
    status: str
    error_type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The answers that a join used. A resume gives the same ones.

    `results` and `failed` are in the order of the delegations. `missing` had not ended when the
    join did. `late` lists the answers of these that are there by now: they are no part of the
    recorded answer.
    """

    results: tuple[DelegationResult, ...]
    failed: tuple[DelegationFailure, ...]
    missing: tuple[Delegation, ...]
    late: tuple[DelegationResult | DelegationFailure, ...] = ()

    @property
    def values(self) -> list[Any]:
        """The values of the results."""
        return [result.value for result in self.results]
