"""The journal of restores: one row for each directory, written before the first file is changed.

While a restore runs, and after one was cut off, the row names its source (the safety snapshot) and
its target. Either can be reached from any state in between, since every path that may have been
touched is in one of them. After the restore the row stays, for `undo`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import ormsgpack

from holdfast.backends.port import STORE, Row, RowKey
from holdfast.errors import CorruptError, NewerVersionError
from holdfast.format.rows import head
from holdfast.model.lease import Process

SPACE = "restore"
VERSION = 1
RUNNING, DONE = "running", "done"
_NOT_LOGGED = ("process", "operation")
_TOKEN = re.compile("[0-9a-f]{12}")  # as `secrets.token_hex(6)` makes it


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreJournal:
    """One restore. Snapshots are named as a checkpoint's `workspace` names them."""

    token: str  # in the names of its temporary files
    state: str  # RUNNING or DONE
    safety_id: str  # the pinned checkpoint with the files as they were before
    safety: str
    target: str
    target_id: str | None
    scope: str  # "files", "both"
    only: tuple[bytes, ...] | None  # the changed paths; None: all that differ but `untouched`, which are fewer then
    untouched: tuple[bytes, ...]
    known: tuple[str, ...]  # snapshots whose contents are not the user's own changes
    session_id: str | None  # the session that is rolled back with the files
    from_id: str | None
    started_at_us: int
    process: Process
    operation: tuple[bytes, str, str, bytes | None] | None = None  # in the log: id, kind, author, undone operation
    include_set_id: bool = False  # set-id bits of an imported snapshot were requested
    previous: RestoreJournal | None = None  # the one that this one replaced: in force again if this one is rolled back

    def touches(self, path: bytes) -> bool:
        """Return whether it changes a path in which safety snapshot and target differ."""
        return path not in self.untouched if self.only is None else path in self.only

    def pack(self, key: RowKey) -> bytes:
        return head.protect(key, ormsgpack.packb(self._fields()))

    def _fields(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in ("process", "previous")}
        fields |= {"v": VERSION, "process": list(self.process)}
        if not self.include_set_id:
            del fields["include_set_id"]
        if self.previous is not None:
            fields["previous"] = replace(self.previous, previous=None)._fields()
        return fields

    def get_logged_part(self) -> dict[str, Any]:
        """Return the part that the operation log keeps: enough to undo it."""
        return {
            name: value for name, value in replace(self, previous=None)._fields().items() if name not in _NOT_LOGGED
        }


def key(root: bytes, inode: int) -> RowKey:
    """Return the key of a directory's row.

    It has the path and the inode, so that another directory at the same path has its own row.
    """
    return RowKey(SPACE, root + b"\0" + inode.to_bytes(8, "big"), STORE)


def unpack(key: RowKey, row: Row) -> RestoreJournal:
    return _journal(ormsgpack.unpackb(head.content(key, row)))


def from_log(fields: dict[str, Any]) -> RestoreJournal:
    return _journal({**fields, "process": ["", 0, 0]})


def _journal(fields: dict[str, Any]) -> RestoreJournal:
    if fields.pop("v") > VERSION:
        raise NewerVersionError("the journal of a restore was written by a newer holdfast. Upgrade to finish it")
    try:
        previous = fields.pop("previous", None)
        if not _TOKEN.fullmatch(fields["token"]):  # it becomes part of a path
            raise ValueError("its token is not one of holdfast's")
        fields |= {name: tuple(fields[name]) for name in ("untouched", "known")}
        fields["only"] = None if fields["only"] is None else tuple(fields["only"])
        fields["process"] = Process(*fields["process"])
        if fields.get("operation") is not None:
            id_, kind, by, of = fields["operation"]
            fields["operation"] = (id_, kind, by, of)
        return RestoreJournal(**fields, previous=None if previous is None else _journal(previous))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"the journal of a restore can't be read ({error}): run `verify`") from error
