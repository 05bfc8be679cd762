"""The ledger as rows: one for each effect, in its tree and outside every checkpoint.

The key is the effect's id, which follows from tree, tool and identity. So every caller of the same
effect, on any branch, reads the same row, and the commit that writes *started* compares it. A row
is append-only: its history has every fact and decision about the effect, and their authors.
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
from holdfast.format.rows import head
from holdfast.model import effect as effects
from holdfast.model import ids
from holdfast.model.effect import EffectEvent, EffectKind, EffectRecord, EffectState

LEDGER = "ledger"
VERSION = 3  # 1: without its place; 2: without sequence, rolled_back, declared and function
NOT_KEPT = "its result could not be kept"
"""How the error of an effect begins that was carried out and has no result.

Before version 3 such a row said that the result was None.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A ledger entry of an effect, and its row as read or to be written (`value` None: not written)."""

    id: bytes
    tree: bytes
    tool: str
    kind: EffectKind
    state: EffectState
    identity: bytes  # its digest
    loose: bytes  # the digest without values that usually differ in every call
    ordinal: int
    generation: int
    attempts: int
    session: str
    agent: str
    token: int  # of the lease that it was started under
    anchor: bytes | None
    checkpoint: bytes | None
    arguments: bytes  # encoded
    identified: bytes  # encoded: the arguments that form the identity
    result: bytes | None
    error: str | None
    approval: str | None
    undoable: bool
    acknowledged: bool
    target: bytes | None
    place: str | None  # where the program makes the call; None: anywhere, or by an older holdfast
    sequence: int | None = (
        None  # the last sequence number of its session when it was started; None: by an older holdfast
    )
    rolled_back: bool = False  # the session was rolled back since it was left in doubt
    declared: bool = False  # its identity was declared by `key` or `identity`: another one is another effect
    function: str | None = None  # the called function, by module and name, where these tell functions apart
    history: tuple[tuple[str, int, str, str | None], ...] = ()
    version: int = ABSENT
    value: bytes | None = None

    @property
    def provider_key(self) -> str:
        return effects.provider_key(self.tree, self.tool, self.identity, self.ordinal, self.generation)

    @property
    def is_not_kept(self) -> bool:
        """Whether it was carried out, but its result could not be stored."""
        return self.state is EffectState.DONE and self.result is None

    @property
    def key(self) -> RowKey:
        return key(self.id, self.tree)

    def change(self, event: str, at_us: int, by: str, note: str | None = None, **changes: Any) -> LedgerEntry:
        """Return the entry with these changes, and one more line in its history."""
        return replace(self, history=(*self.history, (event, at_us, by, note)), **changes)

    def write(self, following: LedgerEntry | None) -> RowWrite:
        """Return the write that replaces the entry `following`; None: there must be no row."""
        expect, was = (ABSENT, None) if following is None else (following.version, following.value)
        return RowWrite(self.key, self.pack(), expect, was)

    def follow_row(self, following: LedgerEntry | None) -> LedgerEntry:
        """Return the entry with the row that `write` makes."""
        return replace(self, version=1 if following is None else following.version + 1, value=self.pack())

    def pack(self) -> bytes:
        fields = {
            "v": VERSION,
            "tool": head.session_key(self.tool),
            "kind": str(self.kind),
            "state": str(self.state),
            "identity": self.identity,
            "loose": self.loose,
            "ordinal": self.ordinal,
            "generation": self.generation,
            "attempts": self.attempts,
            "session": head.session_key(self.session),
            "agent": head.session_key(self.agent),
            "token": self.token,
            "anchor": self.anchor,
            "checkpoint": self.checkpoint,
            "arguments": self.arguments,
            "identified": self.identified,
            "result": self.result,
            "error": None if self.error is None else head.session_key(self.error),
            "approval": self.approval,
            "undoable": self.undoable,
            "acknowledged": self.acknowledged,
            "target": self.target,
            "place": None if self.place is None else head.session_key(self.place),
            "sequence": self.sequence,
            "rolled_back": self.rolled_back,
            "declared": self.declared,
            "function": None if self.function is None else head.session_key(self.function),
            "history": [
                [event, at, head.session_key(by), None if note is None else head.session_key(note)]
                for event, at, by, note in self.history
            ],
        }
        return head.protect(self.key, ormsgpack.packb(fields))

    def effect(self, codec: Codec) -> EffectRecord:
        """Return the entry as an `EffectRecord`."""
        return EffectRecord(
            effect_id=ids.to_text(self.id),
            tool=self.tool,
            kind=self.kind,
            state=self.state,
            session_id=self.session,
            agent_id=self.agent,
            tree_id=ids.to_text(self.tree),
            arguments=codec.decode(self.arguments, path="arguments"),
            identity=codec.decode(self.identified, path="identity"),
            provider_key=self.provider_key,
            ordinal=self.ordinal,
            generation=self.generation,
            attempts=self.attempts,
            anchor_id=ids.to_text(self.anchor) if self.anchor else None,
            checkpoint_id=ids.to_text(self.checkpoint) if self.checkpoint else None,
            result=codec.decode(self.result, path="result") if self.result is not None else None,
            error=self.error,
            approval_id=self.approval,
            undoable=self.undoable,
            acknowledged=self.acknowledged,
            target_id=ids.to_text(self.target) if self.target else None,
            history=tuple(
                EffectEvent(what=event, at=_EPOCH + timedelta(microseconds=at), by=by, note=note)
                for event, at, by, note in self.history
            ),
        )


def key(id_: bytes, tree: bytes) -> RowKey:
    return RowKey(LEDGER, id_, tree)


def unpack(key: RowKey, row: Row) -> LedgerEntry:
    fields = ormsgpack.unpackb(head.content(key, row))
    if (version := fields.pop("v")) > VERSION:
        raise NewerVersionError(
            f"effect {ids.to_text(key.key)} was written by a newer holdfast: upgrade to go on. Nothing was changed"
        )
    error = None if fields["error"] is None else head.session_name(fields["error"])
    if version < 3 and fields["state"] == EffectState.DONE and error is not None and error.startswith(NOT_KEPT):
        fields["result"] = None
    return LedgerEntry(
        id=key.key,
        tree=key.tree,
        version=row.version,
        value=row.value,
        **fields
        | {
            "tool": head.session_name(fields["tool"]),
            "kind": EffectKind(fields["kind"]),
            "state": EffectState(fields["state"]),
            "session": head.session_name(fields["session"]),
            "agent": head.session_name(fields["agent"]),
            "error": error,
            "place": None if fields.get("place") is None else head.session_name(fields["place"]),
            "function": None if fields.get("function") is None else head.session_name(fields["function"]),
            "history": tuple(
                (event, at, head.session_name(by), None if note is None else head.session_name(note))
                for event, at, by, note in fields["history"]
            ),
        },
    )


# -- identity --------------------------------------------------------------------------------------------------------


def digest(codec: Codec, identified: Mapping[str, Any]) -> bytes:
    """Return the digest of arguments.

    The order of keys, at any depth, makes no difference; every value and type does.
    """
    return hashlib.sha256(codec.encode(canonical(codec, dict(identified)), "arguments")).digest()


def key_digest(key: str) -> bytes:
    """Return the identity of an effect that has a key.

    No encoded mapping of arguments begins like this.
    """
    return hashlib.sha256(b"holdfast effect key 1\0" + head.session_key(key)).digest()


def loose_digest(codec: Codec, identified: Mapping[str, Any]) -> bytes:
    """Return the digest without values that usually differ in every call: UUIDs, times, and such texts."""
    return digest(codec, _drop_volatile(dict(identified)))


def canonical(codec: Codec, value: Any) -> Any:
    """Return the value with its dicts, at any depth of dicts, lists and tuples, in one order of keys."""
    if type(value) is dict:
        return {name: canonical(codec, value[name]) for name in sorted(value, key=codec.encode)}
    if type(value) in (list, tuple):
        return type(value)(canonical(codec, item) for item in value)
    return value


_VOLATILE = re.compile(
    r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"
    r"|\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"
)


def _drop_volatile(value: Any) -> Any:
    if type(value) is dict:
        return {name: _drop_volatile(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_drop_volatile(item) for item in value)
    if isinstance(value, uuid.UUID | datetime | date | time):
        return None
    return None if isinstance(value, str) and _VOLATILE.fullmatch(value) else value
