"""Rows of the operation log: one for each operation, written by the commit that carries it out.

An operation that can't be one commit (files and a state, many trees) has several rows of one id,
its *parts*; each is written with its own part of the change. A row belongs to the tree that is
changed, those about files to the store. Keys are ids with each byte subtracted from 255: a scan
returns the newest first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import ormsgpack

from holdfast.backends.port import ABSENT, Row, RowKey, RowWrite
from holdfast.errors import CorruptError, NewerVersionError
from holdfast.format.rows import head

SPACE = "operation"
VERSION = 1
HEAD, SESSION, TAG, PIN, LIFE, MANY, FILES = "head", "session", "tag", "pin", "checkpoint", "checkpoints", "files"
_INVERTED = bytes(255 - byte for byte in range(256))


class LoggedChange(NamedTuple):
    """The change, as docs/format.md lists it for each kind. Names are bytes; None is nothing."""

    kind: str
    name: bytes
    before: Any
    after: Any


class Origin(NamedTuple):
    """The author of a change; for an undo or a redo, also its kind and the operation that it is about.

    `id` and `part` are for callers that write several rows of one operation.
    """

    by: str
    kind: str | None = None  # None: that of the change itself
    of: bytes | None = None
    id: bytes | None = None
    part: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEntry:
    id: bytes
    tree: bytes
    kind: str
    at_us: int
    by: str
    session: str | None
    of: bytes | None
    changes: tuple[LoggedChange, ...]
    part: int = 0

    def write(self) -> RowWrite:
        key = RowKey(SPACE, key_prefix(self.id) + self.part.to_bytes(2, "big"), self.tree)
        fields = {
            "v": VERSION,
            "kind": self.kind,
            "at": self.at_us,
            "by": head.session_key(self.by),
            "session": None if self.session is None else head.session_key(self.session),
            "of": self.of,
            "changes": [list(change) for change in self.changes],
        }
        return RowWrite(key, head.protect(key, ormsgpack.packb(fields)), ABSENT)

    def with_part(self, other: OperationEntry) -> OperationEntry:
        """Return the operation with the change of another of its rows added."""
        return replace(self, session=self.session or other.session, changes=(*self.changes, *other.changes))


def key_prefix(id_: bytes) -> bytes:
    """Return the prefix of the keys of all parts of an operation."""
    return id_.translate(_INVERTED)


def id_of(key: RowKey) -> bytes:
    return key.key[:16].translate(_INVERTED)


def unpack(key: RowKey, row: Row) -> OperationEntry:
    fields = ormsgpack.unpackb(head.content(key, row))
    try:
        if fields["v"] > VERSION:
            raise NewerVersionError(
                "an entry of the log of operations was written by a newer holdfast. Upgrade to read it"
            )
        return OperationEntry(
            id=id_of(key),
            tree=key.tree,
            kind=fields["kind"],
            at_us=fields["at"],
            by=head.session_name(fields["by"]),
            session=None if fields["session"] is None else head.session_name(fields["session"]),
            of=fields["of"],
            changes=tuple(LoggedChange(*change) for change in fields["changes"]),
            part=int.from_bytes(key.key[16:], "big"),
        )
    except (KeyError, TypeError) as error:
        raise CorruptError(f"an entry of the log of operations can't be read ({error}): run `verify`") from error
