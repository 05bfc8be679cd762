"""The ledger as rows: one for each effect, in its tree and outside of every checkpoint.

The key is the effect's id, which follows from tree, tool and identity: so whoever wants to carry out the same effect, on
whatever branch, meets the same row, and the commit that writes *started* compares it. A row is only ever added to: its
history says everything that was known and decided about the effect, and by whom.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import ormsgpack

from holdfast.backends.port import ABSENT, Row, RowKey, RowWrite
from holdfast.codec.codec import Codec
from holdfast.errors import NewerVersionError
from holdfast.model import effects, ids
from holdfast.model.effects import Effect, EffectKind, EffectState, Event
from holdfast.objects import rows

LEDGER = "ledger"
VERSION = 2  # 1: without its place
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the ledger says about an effect, and the row as it was read or will be (`value` None: not written yet)."""

    id: bytes
    tree: bytes
    tool: str
    kind: EffectKind
    state: EffectState
    identity: bytes  # its digest
    loose: bytes  # the digest without what is usually new in every call
    ordinal: int
    generation: int
    attempts: int
    session: str
    agent: str
    token: int  # of the lease that it was started under
    anchor: bytes | None
    checkpoint: bytes | None
    arguments: bytes  # encoded
    identified: bytes  # encoded: the arguments that make out the identity
    result: bytes | None
    error: str | None
    approval: str | None
    undoable: bool
    acknowledged: bool
    target: bytes | None
    place: str | None  # where in the program it was asked for; None: anywhere, or by an older holdfast
    history: tuple[tuple[str, int, str, str | None], ...]
    version: int = ABSENT
    value: bytes | None = None

    @property
    def provider_key(self) -> str:
        return effects.provider_key(self.tree, self.tool, self.identity, self.ordinal, self.generation)

    @property
    def key(self) -> RowKey:
        return key(self.id, self.tree)

    def now(self, what: str, at_us: int, by: str, note: str | None = None, **changes: Any) -> Entry:
        """The entry with these changes, and one more line in its history."""
        return replace(self, history=(*self.history, (what, at_us, by, note)), **changes)

    def write(self, following: Entry | None) -> RowWrite:
        """Puts this entry in the place of the one that it follows; None: in that of nothing."""
        expect, was = (ABSENT, None) if following is None else (following.version, following.value)
        return RowWrite(self.key, self.pack(), expect, was)

    def stored(self, following: Entry | None) -> Entry:
        """The entry as the row that `write` makes."""
        return replace(self, version=1 if following is None else following.version + 1, value=self.pack())

    def pack(self) -> bytes:
        fields = {
            "v": VERSION,
            "tool": rows.session_key(self.tool),
            "kind": str(self.kind),
            "state": str(self.state),
            "identity": self.identity,
            "loose": self.loose,
            "ordinal": self.ordinal,
            "generation": self.generation,
            "attempts": self.attempts,
            "session": rows.session_key(self.session),
            "agent": rows.session_key(self.agent),
            "token": self.token,
            "anchor": self.anchor,
            "checkpoint": self.checkpoint,
            "arguments": self.arguments,
            "identified": self.identified,
            "result": self.result,
            "error": None if self.error is None else rows.session_key(self.error),
            "approval": self.approval,
            "undoable": self.undoable,
            "acknowledged": self.acknowledged,
            "target": self.target,
            "place": None if self.place is None else rows.session_key(self.place),
            "history": [
                [what, at, rows.session_key(by), None if note is None else rows.session_key(note)]
                for what, at, by, note in self.history
            ],
        }
        return rows.protect(self.key, ormsgpack.packb(fields))

    def effect(self, codec: Codec) -> Effect:
        """The entry as people see it."""
        return Effect(
            effect_id=ids.to_text(self.id),
            tool=self.tool,
            kind=self.kind,
            state=self.state,
            session_id=self.session,
            agent_id=self.agent,
            tree_id=ids.to_text(self.tree),
            arguments=codec.decode(self.arguments),
            identity=codec.decode(self.identified),
            provider_key=self.provider_key,
            ordinal=self.ordinal,
            generation=self.generation,
            attempts=self.attempts,
            anchor_id=ids.to_text(self.anchor) if self.anchor else None,
            checkpoint_id=ids.to_text(self.checkpoint) if self.checkpoint else None,
            result=codec.decode(self.result) if self.result is not None else None,
            error=self.error,
            approval_id=self.approval,
            undoable=self.undoable,
            acknowledged=self.acknowledged,
            target_id=ids.to_text(self.target) if self.target else None,
            history=tuple(
                Event(what=what, at=_EPOCH + timedelta(microseconds=at), by=by, note=note)
                for what, at, by, note in self.history
            ),
        )


def key(id_: bytes, tree: bytes) -> RowKey:
    return RowKey(LEDGER, id_, tree)


def unpack(key: RowKey, row: Row) -> Entry:
    fields = ormsgpack.unpackb(rows.content(key, row))
    if fields.pop("v") > VERSION:
        raise NewerVersionError(
            f"effect {ids.to_text(key.key)} was written by a newer holdfast: upgrade to go on. Nothing was changed"
        )
    return Entry(
        id=key.key,
        tree=key.tree,
        version=row.version,
        value=row.value,
        **fields
        | {
            "tool": rows.session_name(fields["tool"]),
            "kind": EffectKind(fields["kind"]),
            "state": EffectState(fields["state"]),
            "session": rows.session_name(fields["session"]),
            "agent": rows.session_name(fields["agent"]),
            "error": None if fields["error"] is None else rows.session_name(fields["error"]),
            "place": None if fields.get("place") is None else rows.session_name(fields["place"]),
            "history": tuple(
                (what, at, rows.session_name(by), None if note is None else rows.session_name(note))
                for what, at, by, note in fields["history"]
            ),
        },
    )


# -- identity --------------------------------------------------------------------------------------------------------


def digest(codec: Codec, identified: Mapping[str, Any]) -> bytes:
    """The same for the same arguments: the order of keys, at any depth, makes no difference; every value and type does."""
    return hashlib.sha256(codec.encode(canonical(codec, dict(identified)), "arguments")).digest()


def loose_digest(codec: Codec, identified: Mapping[str, Any]) -> bytes:
    """The same without what is new in every call as a rule: UUIDs, moments, and texts that read like them."""
    return digest(codec, _without_volatile(dict(identified)))


def canonical(codec: Codec, value: Any) -> Any:
    """The value with its dicts, at any depth of dicts, lists and tuples, in one order of their keys."""
    if type(value) is dict:
        return {one: canonical(codec, value[one]) for one in sorted(value, key=codec.encode)}
    if type(value) in (list, tuple):
        return type(value)(canonical(codec, item) for item in value)
    return value


_VOLATILE = re.compile(
    r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"
)


def _without_volatile(value: Any) -> Any:
    if type(value) is dict:
        return {name: _without_volatile(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_volatile(item) for item in value)
    if isinstance(value, uuid.UUID | datetime | date | time):
        return None
    return None if isinstance(value, str) and _VOLATILE.fullmatch(value) else value
