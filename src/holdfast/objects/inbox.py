"""The inbox: a row for each handoff, in the tree of its checkpoint, under the name of the agent it is addressed to.

The row is written by the commit that makes the handoff. While the handoff waits, it says who claimed it last; once
somebody went on from it, the row moves to the end of the agent's inbox, so that looking for work costs what waits, not
what was ever done. All these changes are made by commits that also compare the head's row of the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import ormsgpack

from holdfast.backends.port import Row, RowKey, RowWrite
from holdfast.objects import rows
from holdfast.objects.record import Stored

INBOX = "inbox"
WAITING, DONE = b"\x00", b"\x01"


class Claimed(NamedTuple):
    """Who claimed it last: in force as long as the session's lease has this token, and lives. `moved_from` is where the
    session stood, if it was not at the handoff."""

    claim_id: bytes
    token: int
    at_us: int
    holder: bytes
    moved_from: bytes | None


class Done(NamedTuple):
    """What followed it: a checkpoint of its claimant or target, or the handoff by which it was passed on."""

    next: bytes
    at_us: int
    by: bytes
    passed_on: bool


Entry = Claimed | Done | None  # None: offered


def prefix(agent_id: str, part: bytes = b"") -> bytes:
    """What the keys of an agent's inbox begin with; no agent's is the beginning of another's."""
    name = rows.session_key(agent_id)
    return len(name).to_bytes(4, "big") + name + part


def key(handoff: Stored, part: bytes) -> RowKey:
    return RowKey(INBOX, prefix(handoff.header["to"], part) + handoff.id, handoff.tree)


def handoff_id(key: RowKey) -> bytes:
    return key.key[-16:]


def is_waiting(key: RowKey) -> bool:
    """Whether nobody has gone on from the handoff of this row."""
    return key.key[-17:-16] == WAITING


def pack(key: RowKey, entry: Entry) -> bytes:
    return rows.protect(key, ormsgpack.packb(list(entry) if entry is not None else []))


def unpack(key: RowKey, row: Row) -> Entry:
    fields = ormsgpack.unpackb(rows.content(key, row))
    if not fields:
        return None
    return Done(*fields) if key.key[-17:-16] == DONE else Claimed(*fields)


def changes(made: Stored, parent: Stored | None, *, claimed: bytes | None, holder: bytes | None) -> list[RowWrite]:
    """What a new checkpoint changes in inboxes: it opens an entry if it is a handoff, and ends that of its parent if it
    goes on from there: as its target, under its claim, or by passing it on. In another session, it is another line."""
    writes = []
    is_handoff = "to" in made.header
    if is_handoff:
        waiting = key(made, WAITING)
        writes.append(RowWrite(waiting, pack(waiting, None)))
    if parent is not None and "to" in parent.header and parent.session == made.session:
        header: Mapping[str, Any] = made.header
        if is_handoff or header["agent"] == parent.header["to"] or claimed == parent.id:
            done = key(parent, DONE)
            by = holder if holder is not None else rows.session_key(header["agent"])
            writes.append(RowWrite(key(parent, WAITING), None))
            writes.append(RowWrite(done, pack(done, Done(made.id, header["at"], by, is_handoff))))
    return writes
