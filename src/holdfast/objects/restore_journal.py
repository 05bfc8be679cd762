"""The journal of restores: one row for each directory, written before the first file is changed.

While a restore runs, and after one was cut off, the row says from what (the safety snapshot) to what (the target): either
can be reached from any state in between, since every path that may have been touched is in one of them. Once it is done
the row stays, and is what `undo` goes by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ormsgpack

from holdfast.backends.port import STORE, Row, RowKey
from holdfast.errors import CorruptError, NewerVersionError
from holdfast.model.lease import Process
from holdfast.objects import rows

SPACE = "restore"
VERSION = 1
RUNNING, DONE = "running", "done"
_NOT_LOGGED = ("process", "operation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """One restore. Snapshots are named as a checkpoint's `workspace` names them."""

    token: str  # in the names of its temporary files
    state: str  # RUNNING or DONE
    safety_id: str  # the pinned checkpoint with what was there before
    safety: str
    target: str
    target_id: str | None
    scope: str  # "files", "both"
    only: tuple[bytes, ...] | None  # what it touches of what differs; None: all but `untouched`, which is fewer then
    untouched: tuple[bytes, ...]
    known: tuple[str, ...]  # snapshots whose contents are not the user's own changes
    session_id: str | None  # the session that is rolled back with the files
    from_id: str | None
    started_at_us: int
    process: Process
    operation: tuple[bytes, str, str, bytes | None] | None = None  # in the log: id, kind, by whom, of which other
    previous: Journal | None = None  # the one that this one replaced: in force again if this one is rolled back

    def touches(self, path: bytes) -> bool:
        """Whether a path in which safety snapshot and target differ is one that it changes."""
        return path not in self.untouched if self.only is None else path in self.only

    def pack(self, key: RowKey) -> bytes:
        return rows.protect(key, ormsgpack.packb(self._fields()))

    def _fields(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in ("process", "previous")}
        fields |= {"v": VERSION, "process": list(self.process)}
        if self.previous is not None:
            fields["previous"] = replace(self.previous, previous=None)._fields()
        return fields

    def logged(self) -> dict[str, Any]:
        """What the log of operations keeps of it: enough to take it back."""
        return {name: one for name, one in replace(self, previous=None)._fields().items() if name not in _NOT_LOGGED}


def key(root: bytes, inode: int) -> RowKey:
    """The row of a directory: by its path, and by its inode, so that another one which takes its place has its own."""
    return RowKey(SPACE, root + b"\0" + inode.to_bytes(8, "big"), STORE)


def unpack(key: RowKey, row: Row) -> Journal:
    return _journal(ormsgpack.unpackb(rows.content(key, row)))


def from_log(fields: dict[str, Any]) -> Journal:
    return _journal({**fields, "process": ["", 0, 0]})


def _journal(fields: dict[str, Any]) -> Journal:
    if fields.pop("v") > VERSION:
        raise NewerVersionError("the journal of a restore was written by a newer holdfast. Upgrade to finish it")
    try:
        previous = fields.pop("previous", None)
        fields |= {name: tuple(fields[name]) for name in ("untouched", "known")}
        fields["only"] = None if fields["only"] is None else tuple(fields["only"])
        fields["process"] = Process(*fields["process"])
        if fields.get("operation") is not None:
            id_, kind, by, of = fields["operation"]
            fields["operation"] = (id_, kind, by, of)
        return Journal(**fields, previous=None if previous is None else _journal(previous))
    except (KeyError, TypeError) as error:
        raise CorruptError(f"the journal of a restore can't be read ({error}): run `verify`") from error
