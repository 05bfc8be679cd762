"""Effects on the outside world: the recorded facts, and the outcome of a repeated call.

Whether an effect happened is a fact about the world. So its entry is in the ledger of the tree,
which no rollback and no fork takes back. `decide` compares a call with that entry, not with the
session's head.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any

from holdfast.model import ids


class EffectKind(StrEnum):
    READ = "read"  # changes nothing: recorded like a step, made again after a rollback
    IDEMPOTENT = "idempotent"  # twice is the same as once
    REVERSIBLE = "reversible"  # can be taken back, which is an effect, too
    IRREVERSIBLE = "irreversible"


class EffectState(StrEnum):
    STARTED = "started"  # about to be called, or being called; if the process is gone, the outcome is unknown
    DONE = "done"
    FAILED = "failed"  # certainly not carried out
    UNKNOWN = "unknown"  # the call raised, which does not tell whether it happened
    COMPENSATING = "compensating"  # being undone; if the process is gone, the outcome is unknown
    COMPENSATED = "compensated"
    MODIFIED = "modified"  # another call was approved and made instead: its `target`


IN_DOUBT = (EffectState.STARTED, EffectState.UNKNOWN, EffectState.COMPENSATING)
HAPPENED = (EffectState.DONE, *IN_DOUBT)  # or may have


class OnRepeat(StrEnum):
    """The policy for a call whose effect was carried out on another branch, or was rolled back."""

    REPLAY = "replay"  # its recorded result is returned
    BLOCK = "block"  # `EffectBlockedError`
    AGAIN = "again"  # carried out once more, with a provider key of its own
    COMPENSATE = "compensate"  # undone first, then carried out


class EffectAction(StrEnum):
    RUN = "run"
    ADOPT = "adopt"  # known to be done, by a probe or a person: its result is recorded here
    REPLAY = "replay"
    BLOCK = "block"
    COMPENSATE = "compensate"
    PROBE = "probe"
    NOT_KEPT = "not kept"  # it was carried out, but its result is not stored
    FOLLOW = "follow"  # continue with the call that was made instead
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Done:
    """A probe's answer: the effect was carried out, with this result."""

    result: Any = None


class NotDone(Enum):
    """The class of `NOT_DONE`."""

    NOT_DONE = "not done"

    def __repr__(self) -> str:
        return "NOT_DONE"


NOT_DONE = NotDone.NOT_DONE
"""A probe's answer: the effect was certainly not carried out."""
ProbeAnswer = Done | NotDone


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectEvent:
    """One line of an effect's history, which is append-only."""

    what: str
    at: datetime
    by: str
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EffectRecord:
    """An entry of the ledger.

    `checkpoint_id` is the checkpoint that recorded the result, `anchor_id` the session's head
    before the call. `arguments` are those of the last call, `identity` those that identify the
    effect. `generation` rises with each decision to carry it out once more; `provider_key` is the
    key of the current generation.
    """

    effect_id: str
    tool: str
    kind: EffectKind
    state: EffectState
    session_id: str
    agent_id: str
    tree_id: str
    arguments: Mapping[str, Any]
    identity: Mapping[str, Any]
    provider_key: str
    ordinal: int = 0
    generation: int = 0
    attempts: int = 1
    anchor_id: str | None = None
    checkpoint_id: str | None = None
    result: Any = None
    error: str | None = None
    approval_id: str | None = None
    target_id: str | None = None
    undoable: bool = False
    acknowledged: bool = False
    history: tuple[EffectEvent, ...] = field(default=())

    @property
    def short_id(self) -> str:
        return ids.short(self.effect_id)

    @property
    def is_in_doubt(self) -> bool:
        return self.state in IN_DOUBT

    @property
    def stays(self) -> bool:
        """Whether a rollback leaves it, or may leave it, in the world."""
        return self.state in HAPPENED and self.kind is not EffectKind.READ

    def __repr__(self) -> str:
        about = f"{self.short_id} {self.tool!r:.60} {self.kind} {self.state}"
        return f"<EffectRecord {about} of session {self.session_id!r:.60}>"


def default_on_repeat(kind: EffectKind) -> OnRepeat:
    return OnRepeat.BLOCK if kind is EffectKind.IRREVERSIBLE else OnRepeat.REPLAY


def decide(
    state: EffectState | None,
    kind: EffectKind,
    *,
    recorded: bool,
    can_probe: bool,
    kept: bool = True,
    on_repeat: OnRepeat | None = None,
) -> EffectAction:
    """Decide how to answer a call that has no result on this line of execution.

    `state` is the state of the ledger's entry, None if there is none. `recorded` says that some
    checkpoint has the result; it is then on another branch or was rolled back. `kept` says that a
    result is stored.
    """
    found = _decide(state, kind, recorded=recorded, can_probe=can_probe, on_repeat=on_repeat)
    if kept or found not in (EffectAction.ADOPT, EffectAction.REPLAY):
        return found
    return EffectAction.RUN if kind is EffectKind.IDEMPOTENT else EffectAction.NOT_KEPT


def _decide(
    state: EffectState | None, kind: EffectKind, *, recorded: bool, can_probe: bool, on_repeat: OnRepeat | None
) -> EffectAction:
    if state in (None, EffectState.FAILED, EffectState.COMPENSATED):
        return EffectAction.RUN
    if state is EffectState.DONE:
        if not recorded:
            return EffectAction.ADOPT
        match on_repeat or default_on_repeat(kind):
            case OnRepeat.REPLAY:
                return EffectAction.REPLAY
            case OnRepeat.AGAIN:
                return EffectAction.RUN
            case OnRepeat.COMPENSATE:
                return EffectAction.COMPENSATE
            case OnRepeat.BLOCK:
                return EffectAction.BLOCK
    if state is EffectState.MODIFIED:
        return EffectAction.FOLLOW
    if state is EffectState.COMPENSATING:
        return EffectAction.UNKNOWN
    if kind is EffectKind.IDEMPOTENT:
        return EffectAction.RUN
    return EffectAction.PROBE if can_probe else EffectAction.UNKNOWN


def effect_id(tree: bytes, tool: str, identity: bytes, ordinal: int) -> bytes:
    """Return the id of an effect: the same on every branch of a tree, whenever it is called.

    It is a UUID of version 8, without a time, and has the tag of its tree where ids have it.
    """
    noise = hashlib.sha256(_join_parts(b"holdfast effect 1", tree, _name(tool), identity, b"%d" % ordinal)).digest()
    return noise[:6] + bytes((0x80 | noise[6] & 0x0F, noise[7])) + ids.tree_tag(tree) + noise[8:12]


def provider_key(tree: bytes, tool: str, identity: bytes, ordinal: int, generation: int) -> str:
    """Return the idempotency key by which the provider detects repetitions.

    It follows from tree, tool and identity, so a retry after a crash, a rollback or in a fork
    carries the same key. Only a decision to carry the effect out once more makes another one.
    """
    named = _join_parts(b"holdfast provider key 1", _name(tool), identity, b"%d" % ordinal, b"%d" % generation)
    digest = hmac.digest(tree, named, "sha256")
    return "hf1_" + base64.b32encode(digest[:20]).decode().lower()


def _name(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _join_parts(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
