"""Approvals: the request, the decision, and the policy that says which calls need one.

An approval is bound to one exact call in one session, is used at most once, and expires.
Reversibility and stakes decide which calls need an approval (`StakesPolicy`). Without a policy, no
call needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from holdfast.errors import UsageError
from holdfast.model import ids

DEFAULT_SECONDS = 24 * 3600.0


class ApprovalStatus(StrEnum):
    PENDING = "pending"  # not decided yet
    APPROVED = "approved"  # it may be carried out, once
    MODIFIED = "modified"  # it may be carried out, once, with other arguments
    REJECTED = "rejected"
    EXPIRED = "expired"  # its time was over before it was decided or used
    USED = "used"  # it was carried out
    VOID = "void"  # the session has left the checkpoint of the request, or makes another call there now


class Answer(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"
    MODIFY = "modify"


class Gate(StrEnum):
    """The requirement that a call must meet before it is carried out."""

    GO = "go"  # nothing
    CONFIRM = "confirm"  # a person says yes
    PROPOSE = "propose"  # a person reviews the proposed change; then it is applied
    APPROVE = "approve"  # a person approves it explicitly after seeing the whole call


class Stakes(StrEnum):
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call to carry out: the tool's name, all arguments, those that form its identity, and its kind.

    The kind is "read", "idempotent", "reversible" or "irreversible". `undoable` says that the call
    has a compensation. `schema` is a hash of the tool's parameters, where it is known: a tool with
    other parameters is another tool.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    identity: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "irreversible"
    undoable: bool = False
    schema: str | None = None

    @property
    def is_reversible(self) -> bool:
        """Idempotent is not reversible: it may be repeated, which does not take it back."""
        return self.undoable or self.kind in ("read", "reversible")


class Policy(Protocol):
    """A policy that decides which calls need approval. `approvers` names the people to ask."""

    @property
    def approvers(self) -> str | None: ...

    def gate(self, call: Call) -> Gate: ...


@dataclass(frozen=True, slots=True)
class StakesPolicy:
    """A policy that decides by stakes and reversibility.

    |      | reversible          | irreversible      |
    |------|---------------------|-------------------|
    | low  | go                  | confirm           |
    | high | propose, then apply | explicit approval |

    `stakes` says which calls matter: a mapping from tools to "low" or "high", or a function of the
    `Call`. A call that it does not name has the stakes `default`: high, unless set otherwise. A
    call of the kind "read" never needs approval.
    """

    stakes: Mapping[str, str] | Callable[[Call], str | None] = field(default_factory=dict)
    default: str = Stakes.HIGH
    approvers: str | None = None

    def stakes_of(self, call: Call) -> Stakes:
        found = self.stakes(call) if callable(self.stakes) else self.stakes.get(call.tool)
        try:
            return Stakes(self.default if found is None else found)
        except ValueError:
            raise UsageError(
                f"the stakes of {call.tool!r:.60} are {found!r:.60}: they must be 'low' or 'high', or None for the "
                "policy's default"
            ) from None

    def gate(self, call: Call) -> Gate:
        if call.kind == "read":
            return Gate.GO
        if self.stakes_of(call) is Stakes.LOW:
            return Gate.GO if call.is_reversible else Gate.CONFIRM
        return Gate.PROPOSE if call.is_reversible else Gate.APPROVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's answer: who, when, and why. `arguments` are the ones to use if it is "modify"."""

    answer: Answer
    by: str
    at: datetime
    note: str | None = None
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Approval:
    """A call that waits for a person's decision, or has one.

    `checkpoint_id` is the session's head at the time of the request. `approvers` names the people
    to ask, and `summary` describes the call in words. `digest` is that of the call: tool, identity
    and all arguments. `may_run` is the digest of the call that may be carried out now. `used_by` is
    the effect that used the approval.
    """

    approval_id: str
    session_id: str
    call: Call
    gate: Gate
    status: ApprovalStatus
    digest: bytes
    requested_at: datetime
    expires_at: datetime
    checkpoint_id: str | None = None
    approvers: str | None = None
    summary: str | None = None
    decision: Decision | None = None
    may_run: bytes | None = None
    used_by: str | None = None
    ended_at: datetime | None = None  # when it was used, or became void

    @property
    def short_id(self) -> str:
        return ids.short(self.approval_id)

    @property
    def is_pending(self) -> bool:
        return self.status is ApprovalStatus.PENDING

    @property
    def is_granted(self) -> bool:
        """Whether the call may be carried out now."""
        return self.status in (ApprovalStatus.APPROVED, ApprovalStatus.MODIFIED)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments to call the tool with: the requested ones, or those of the decision."""
        changed = self.decision.arguments if self.decision is not None else None
        return self.call.arguments if changed is None else changed

    def __repr__(self) -> str:
        by = f" by {self.decision.by!r:.60}" if self.decision is not None else ""
        return (
            f"<Approval {self.short_id} {self.call.tool!r:.60} of session {self.session_id!r:.60} {self.status}{by} "
            f"until {self.expires_at:%Y-%m-%d %H:%M:%S}>"
        )
