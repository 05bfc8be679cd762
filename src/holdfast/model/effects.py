"""Effects: what is done to the outside world, what is known about it, and what a call for one that is known leads to.

Whether an effect happened is a fact about the world. So its entry stands in the ledger of the tree, which no rollback and
no fork takes back, and `decide` compares a call with that entry, not with where the session stands.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.model import ids


class EffectKind(StrEnum):
    READ = "read"  # changes nothing: recorded like a step, made again after a rollback
    IDEMPOTENT = "idempotent"  # twice is the same as once
    REVERSIBLE = "reversible"  # can be taken back, which is an effect, too
    IRREVERSIBLE = "irreversible"


class EffectState(StrEnum):
    STARTED = "started"  # about to be called, or being called; if whoever did so is gone: nobody knows
    DONE = "done"
    FAILED = "failed"  # certainly not carried out
    UNKNOWN = "unknown"  # the call raised, and that says nothing about what happened
    COMPENSATING = "compensating"  # being undone; if whoever did so is gone: nobody knows
    COMPENSATED = "compensated"
    MODIFIED = "modified"  # another call was approved and made in its place: its `target`


IN_DOUBT = (EffectState.STARTED, EffectState.UNKNOWN, EffectState.COMPENSATING)
HAPPENED = (EffectState.DONE, *IN_DOUBT)  # or may have


class OnRepeat(StrEnum):
    """What becomes of a call for an effect that was carried out on another branch, or that was rolled back."""

    REPLAY = "replay"  # its recorded result is given
    BLOCK = "block"  # `EffectBlockedError`
    AGAIN = "again"  # carried out once more, with a provider key of its own
    COMPENSATE = "compensate"  # undone first, then carried out


class Action(StrEnum):
    RUN = "run"
    ADOPT = "adopt"  # known to be done, by a probe or a person: its result is recorded here
    REPLAY = "replay"
    BLOCK = "block"
    COMPENSATE = "compensate"
    PROBE = "probe"
    FOLLOW = "follow"  # to the call that was made in its place
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of an effect's history: nothing of it is ever removed."""

    what: str
    at: datetime
    by: str
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Effect:
    """An entry of the ledger.

    `checkpoint_id` is the one that recorded the result, `anchor_id` the one that the session stood at before the call.
    `arguments` are those of the last call, `identity` those that make out which effect it is. `generation` rises when it is
    decided to carry it out once more; `provider_key` is the key of the current one.
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
    history: tuple[Event, ...] = field(default=())

    @property
    def short_id(self) -> str:
        return ids.short(self.effect_id)

    @property
    def is_in_doubt(self) -> bool:
        return self.state in IN_DOUBT

    @property
    def stays(self) -> bool:
        """Whether it is, or may be, something that a rollback leaves behind in the world."""
        return self.state in HAPPENED and self.kind is not EffectKind.READ

    def __repr__(self) -> str:
        return f"<Effect {self.short_id} {self.tool!r:.60} {self.kind} {self.state} of session {self.session_id!r:.60}>"


def default_on_repeat(kind: EffectKind) -> OnRepeat:
    return OnRepeat.BLOCK if kind is EffectKind.IRREVERSIBLE else OnRepeat.REPLAY


def decide(
    state: EffectState | None, kind: EffectKind, *, recorded: bool, can_probe: bool, on_repeat: OnRepeat | None = None
) -> Action:
    """What a call leads to that this line of execution has no record of. `state` is what the ledger says, None if it has no
    entry; `recorded` that some checkpoint has its result, which then is one of another branch or of the time before a
    rollback."""
    if state in (None, EffectState.FAILED, EffectState.COMPENSATED):
        return Action.RUN
    if state is EffectState.DONE:
        if not recorded:
            return Action.ADOPT
        match on_repeat or default_on_repeat(kind):
            case OnRepeat.REPLAY:
                return Action.REPLAY
            case OnRepeat.AGAIN:
                return Action.RUN
            case OnRepeat.COMPENSATE:
                return Action.COMPENSATE
            case OnRepeat.BLOCK:
                return Action.BLOCK
    if state is EffectState.MODIFIED:
        return Action.FOLLOW
    if state is EffectState.COMPENSATING:
        return Action.UNKNOWN
    if kind is EffectKind.IDEMPOTENT:
        return Action.RUN
    return Action.PROBE if can_probe else Action.UNKNOWN


def effect_id(tree: bytes, tool: str, identity: bytes, ordinal: int) -> bytes:
    """The id of an effect: the same on every branch of a tree, whenever it is called. As a UUID of version 8, which is
    of no time, with the tag of its tree where ids have it."""
    noise = hashlib.sha256(_joined(b"holdfast effect 1", tree, _name(tool), identity, b"%d" % ordinal)).digest()
    return noise[:6] + bytes((0x80 | noise[6] & 0x0F, noise[7])) + ids.tree_tag(tree) + noise[8:12]


def provider_key(tree: bytes, tool: str, identity: bytes, ordinal: int, generation: int) -> str:
    """What the other side may tell repetitions by. It follows from tree, tool and identity, so a retry after a crash, a
    rollback or in a fork carries the same one; only a decision to do it once more makes another."""
    named = _joined(b"holdfast provider key 1", _name(tool), identity, b"%d" % ordinal, b"%d" % generation)
    digest = hmac.digest(tree, named, "sha256")
    return "hf1_" + base64.b32encode(digest[:20]).decode().lower()


def _name(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _joined(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
