"""Approvals as rows: one for each request, in the tree of its session.

The key is the id, after a byte that says whether a decision is pending: a search for pending
requests costs only the pending ones. The id follows from the session and the request's key, so a
repeated request, after a crash or an unclear failure, finds the same row. Every change compares the
row with its previous value: of two decisions one wins, and of two effects one gets to use the
approval.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.backends.port import ABSENT, Row, RowKey, RowWrite
from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError, NewerVersionError
from holdfast.format.rows import head as rows
from holdfast.model import ids
from holdfast.model.approval import DEFAULT_SECONDS, Answer, Approval, ApprovalStatus, Call, Decision, Gate

APPROVAL = "approval"
WAITING, DONE = b"\x00", b"\x01"
VERSION = 1
OPEN = (ApprovalStatus.PENDING, ApprovalStatus.APPROVED, ApprovalStatus.MODIFIED)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """An approval, and its row as it was read."""

    approval: Approval
    tree: bytes
    version: int
    value: bytes
    fields: dict[str, Any]  # of the row; arguments in it are packed

    @property
    def id(self) -> bytes:
        return ids.from_text(self.approval.approval_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A request, checked.

    `request_key` tells occasions apart: the same call may be requested once for each. With
    `by_identity` the key stands for the call: the arguments may have changed since, and the first
    ones count.
    """

    session_id: str
    call: Call
    gate: Gate = Gate.APPROVE
    approvers: str | None = None
    summary: str | None = None
    seconds: float = DEFAULT_SECONDS
    request_key: bytes = b""
    by_identity: bool = False


# -- the call it is bound to -------------------------------------------------------------------------------------------


def call_digest(
    codec: Codec, tool: str, identity: Mapping[str, Any], arguments: Mapping[str, Any], schema: str | None = None
) -> bytes:
    """Return the digest of the call that an approval is bound to.

    The order of keys, at any depth, makes no difference. Every value and type does, and so do the
    tool's parameters, where they are known.
    """
    given = [tool, order_keys(codec, dict(identity)), order_keys(codec, dict(arguments))]
    if schema is not None:
        given.append(schema)
    return hashlib.sha256(codec.encode(given, "arguments")).digest()


def order_keys(codec: Codec, value: Any) -> Any:
    """Return the value with its dicts, at any depth of dicts, lists and tuples, in one order of keys."""
    kind = type(value)
    if kind is dict:
        keys = sorted(value) if all(type(key) is str for key in value) else sorted(value, key=codec.encode)
        return {key: order_keys(codec, value[key]) for key in keys}
    if kind is list:
        return [order_keys(codec, item) for item in value]
    if kind is tuple:
        return tuple(order_keys(codec, item) for item in value)
    return value


# -- keys --------------------------------------------------------------------------------------------------------------


def id_of(tree: bytes, session_id: str, request_key: bytes, attempt: int) -> bytes:
    """Return the id of the nth request of that key in that session."""
    named = b"".join(len(part).to_bytes(4, "big") + part for part in (tree, rows.session_key(session_id), request_key))
    noise = hashlib.sha256(named + attempt.to_bytes(4, "big")).digest()
    # A UUIDv8, without a time; with the tag of its tree where ids have it.
    head = noise[:6] + bytes((0x80 | noise[6] & 0x0F, noise[7]))
    return head + ids.tree_tag(tree) + noise[8:12]


def key(tree: bytes, id_: bytes, part: bytes) -> RowKey:
    return RowKey(APPROVAL, part + id_, tree)


# -- values ------------------------------------------------------------------------------------------------------------


def unpack(codec: Codec, key: RowKey, row: Row, now_us: int) -> ApprovalRow:
    """Return the approval of a row at that moment: one whose time is over has expired."""
    fields = codec.decode(rows.content(key, row))
    if fields["v"] > VERSION:
        raise NewerVersionError(
            f"approval {ids.to_text(key.key[1:])} was written by a newer holdfast (version {fields['v']}; this one "
            f"reads up to {VERSION}): upgrade holdfast to read it"
        )
    status = ApprovalStatus(fields["status"])
    if now_us >= fields["expires"] and status in OPEN:
        status = ApprovalStatus.EXPIRED
    decision = None
    if fields["decision"] is not None:
        answer, by, at, note, packed = fields["decision"]
        changed = None if packed is None else codec.decode(packed)
        decision = Decision(answer=Answer(answer), by=by, at=moment(at), note=note, arguments=changed)
    arguments, identity = codec.decode(fields["call"])
    approval = Approval(
        approval_id=ids.to_text(key.key[1:]),
        session_id=fields["session"],
        call=Call(
            tool=fields["tool"],
            arguments=arguments,
            identity=identity,
            kind=fields["kind"],
            undoable=fields["undoable"],
            schema=fields.get("schema"),
        ),
        gate=Gate(fields["gate"]),
        status=status,
        digest=fields["digest"],
        requested_at=moment(fields["requested"]),
        expires_at=moment(fields["expires"]),
        checkpoint_id=fields["checkpoint"],
        approvers=fields["approvers"],
        summary=fields["summary"],
        decision=decision,
        may_run=fields["may_run"],
        used_by=fields["used_by"],
        ended_at=None if fields["ended"] is None else moment(fields["ended"]),
    )
    return ApprovalRow(approval, key.tree, row.version, row.value, fields)


def session_of(codec: Codec, content: bytes) -> str:
    fields = codec.decode(content)
    session = fields.get("session") if isinstance(fields, dict) else None
    if not isinstance(session, str):
        raise CorruptError("an approval is of no session: run `verify`")
    return session


def moment(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


# -- changes -----------------------------------------------------------------------------------------------------------


def write_request(
    codec: Codec, tree: bytes, id_: bytes, terms: ApprovalRequest, checkpoint: bytes | None, digest: bytes, now_us: int
) -> RowWrite:
    """Return a new request of a session whose head is `here`.

    Its arguments are packed by themselves: the deciding process can keep them without knowing their
    types.
    """
    call = terms.call
    fields = {
        "v": VERSION,
        "session": terms.session_id,
        "tool": call.tool,
        "call": codec.encode([dict(call.arguments), dict(call.identity)], "arguments"),
        "kind": call.kind,
        "undoable": call.undoable,
        "schema": call.schema,
        "gate": str(terms.gate),
        "status": str(ApprovalStatus.PENDING),
        "digest": digest,
        "requested": now_us,
        "expires": now_us + round(terms.seconds * 1e6),
        "checkpoint": None if checkpoint is None else ids.to_text(checkpoint),
        "approvers": terms.approvers,
        "summary": terms.summary,
        "decision": None,
        "may_run": None,
        "used_by": None,
        "ended": None,
    }
    return _put(codec, key(tree, id_, WAITING), fields, ABSENT)


def write_decision(codec: Codec, held: ApprovalRow, decision: Decision, may_run: bytes | None) -> list[RowWrite]:
    """Return the writes that move a row from the pending to the decided ones."""
    status = {
        Answer.APPROVE: ApprovalStatus.APPROVED,
        Answer.MODIFY: ApprovalStatus.MODIFIED,
        Answer.REJECT: ApprovalStatus.REJECTED,
    }[decision.answer]
    changed = None if decision.arguments is None else codec.encode(dict(decision.arguments), "arguments")
    at = (decision.at - _EPOCH) // timedelta(microseconds=1)
    packed = [str(decision.answer), decision.by, at, decision.note, changed]
    return _move_row(codec, held, {"status": str(status), "decision": packed, "may_run": may_run})


def write_use(codec: Codec, held: ApprovalRow, by: str, now_us: int) -> RowWrite:
    """Return the write that marks a granted approval as used by the effect `by`."""
    changes = {"status": str(ApprovalStatus.USED), "used_by": by, "ended": now_us}
    return _put(codec, key(held.tree, held.id, DONE), held.fields | changes, held.version, held.value)


def write_void(codec: Codec, held: ApprovalRow, now_us: int) -> list[RowWrite]:
    """Return the writes that make a pending or granted approval void."""
    changes = {"status": str(ApprovalStatus.VOID), "ended": now_us}
    if held.approval.decision is None:
        return _move_row(codec, held, changes)
    return [_put(codec, key(held.tree, held.id, DONE), held.fields | changes, held.version, held.value)]


def merge_imported(codec: Codec, theirs: ApprovalRow, ours: ApprovalRow | None, now_us: int) -> list[RowWrite]:
    """Return the changes that an approval exported from another store makes here.

    An approval that is pending there is pending here, too, and one that has ended there has ended
    here. A decision made here stays. An approval that was granted there and not used is void here:
    a decision is about one call, and was made for the store in which it could be used.
    """
    if ours is not None and (ours.approval.decision is not None or not ours.approval.is_pending):
        return []
    fields = theirs.fields
    if fields["status"] in (ApprovalStatus.APPROVED, ApprovalStatus.MODIFIED):
        fields = fields | {"status": str(ApprovalStatus.VOID), "ended": now_us}
    is_waiting = fields["status"] == ApprovalStatus.PENDING
    if ours is None:
        return [_put(codec, key(theirs.tree, theirs.id, WAITING if is_waiting else DONE), fields, ABSENT)]
    return [] if is_waiting else _move_row(codec, ours, fields)


def _move_row(codec: Codec, held: ApprovalRow, changes: Mapping[str, Any]) -> list[RowWrite]:
    return [
        RowWrite(key(held.tree, held.id, WAITING), None, held.version, held.value),
        _put(codec, key(held.tree, held.id, DONE), held.fields | dict(changes), ABSENT),
    ]


def _put(codec: Codec, key: RowKey, fields: Mapping[str, Any], expect: int, was: bytes | None = None) -> RowWrite:
    return RowWrite(key, rows.protect(key, codec.internal.encode(dict(fields), "approval")), expect, was)
