"""The inbox: a row for each handoff, in its checkpoint's tree, under the addressed agent's name.

The commit that makes the handoff writes the row. While the handoff waits, the row names the last
claimant. Once an agent has continued from it, the row moves to the end of the agent's inbox, so
that a search for work costs only the waiting handoffs. All these changes are made by commits that
also compare the head's row of the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import ormsgpack

from holdfast.backends.port import Row, RowKey, RowWrite
from holdfast.format.rows import head
from holdfast.format.rows.fields import OPTIONAL_BYTES, check_fields, unpack_fields, unpack_name
from holdfast.format.state.record import StoredRecord

INBOX = "inbox"
WAITING, DONE = b"\x00", b"\x01"
_CLAIM = (bytes, int, int, bytes, OPTIONAL_BYTES)
_FOLLOW_UP = (bytes, int, bytes, bool)


class LastClaim(NamedTuple):
    """The last claim: in force while the session's lease has this token and has not run out.

    `moved_from` is the session's head before, if it was not at the handoff.
    """

    claim_id: bytes
    token: int
    at_us: int
    holder: bytes
    moved_from: bytes | None


class FollowUp(NamedTuple):
    """The continuation of a handoff: a checkpoint of its claimant or target, or the next handoff.

    Of a delegation it is the answer. `next` is empty if the handoff was cancelled.
    """

    next: bytes
    at_us: int
    by: bytes
    passed_on: bool


Entry = LastClaim | FollowUp | None  # None: offered


def prefix(agent_id: str, part: bytes = b"") -> bytes:
    """Return the prefix of the keys of an agent's inbox; no agent's prefix begins another's."""
    name = head.session_key(agent_id)
    return len(name).to_bytes(4, "big") + name + part


def key(handoff: StoredRecord, part: bytes) -> RowKey:
    return key_of(handoff.header["to"], handoff.id, handoff.tree, part)


def key_of(agent_id: str, id_: bytes, tree: bytes, part: bytes) -> RowKey:
    return RowKey(INBOX, prefix(agent_id, part) + id_, tree)


def handoff_id(key: RowKey) -> bytes:
    return key.key[-16:]


def is_waiting(key: RowKey) -> bool:
    """Return whether the handoff of this row is still waiting."""
    return key.key[-17:-16] == WAITING


def pack(key: RowKey, entry: Entry) -> bytes:
    return head.protect(key, ormsgpack.packb(list(entry) if entry is not None else []))


def unpack(key: RowKey, row: Row) -> Entry:
    fields = unpack_fields(key, row, (), at_least=True)
    if not fields:
        return None
    is_done = key.key[-17:-16] == DONE
    check_fields(key, fields, _FOLLOW_UP if is_done else _CLAIM)
    entry = FollowUp(*fields) if is_done else LastClaim(*fields)
    unpack_name(key, entry.by if isinstance(entry, FollowUp) else entry.holder)  # raises an error if it is no text
    return entry


def changes(
    made: StoredRecord, parent: StoredRecord | None, *, claimed: bytes | None, holder: bytes | None
) -> list[RowWrite]:
    """Return the changes that a new checkpoint makes to inboxes.

    It opens an entry if it is a handoff. It ends the entry of its parent if it continues from
    there: as its target, under its claim, or by another handoff. A checkpoint in another session is
    another branch and ends nothing. A delegation ends by its answer alone, so that another worker
    can go on if its worker dies.
    """
    writes = []
    is_handoff = "to" in made.header
    if is_handoff:
        waiting = key(made, WAITING)
        writes.append(RowWrite(waiting, pack(waiting, None)))
    is_handed_over = parent is not None and "to" in parent.header and "origin" not in parent.header
    if parent is not None and is_handed_over and parent.session == made.session:
        header: Mapping[str, Any] = made.header
        if is_handoff or header["agent"] == parent.header["to"] or claimed == parent.id:
            done = key(parent, DONE)
            by = holder if holder is not None else head.session_key(header["agent"])
            writes.append(RowWrite(key(parent, WAITING), None))
            writes.append(RowWrite(done, pack(done, FollowUp(made.id, header["at"], by, is_handoff))))
    return writes


def end(agent_id: str, id_: bytes, tree: bytes, follow_up: FollowUp) -> list[RowWrite]:
    """Return the changes that end the entry of a handoff: by an answer, or by a cancellation."""
    done = key_of(agent_id, id_, tree, DONE)
    return [RowWrite(key_of(agent_id, id_, tree, WAITING), None), RowWrite(done, pack(done, follow_up))]
