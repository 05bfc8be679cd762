"""The operation log for users: every change other than a save, and its undo."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model import ids

UNDO, REDO = "undo", "redo"
STEPS = (UNDO, REDO)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationChange:
    """One change of an operation, with the values before and after; None for nothing.

    | kind | name | before, after |
    |---|---|---|
    | head | a session | the checkpoint of its head |
    | session | a session that was begun | its first checkpoint |
    | tag | a tag | the checkpoint it names |
    | pin | a checkpoint | its note, "" if it has none |
    | checkpoint | a checkpoint | "live" or "expired" |
    | checkpoints | the cause of their expiry | None, and how many expired |
    | files | a directory | the checkpoint with the previous files, and the restored one, if there is one |
    """

    kind: str
    name: str
    before: str | None
    after: str | None

    def text(self) -> str:
        """Return the change in a few words."""
        if self.kind == "files":
            return f"files of {self.name}"
        if self.kind == "checkpoints":
            return f"{self.after} checkpoints went"
        if self.kind == "pin":
            was, now = ("not pinned" if item is None else "pinned" for item in (self.before, self.after))
            return f"{_short(self.name)}: {was} → {now}"
        if self.kind == "checkpoint":
            return f"{_short(self.name)}: {self.before} → {self.after}"
        return f"{self.kind} {self.name!r:.260}: {_short(self.before)} → {_short(self.after)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An entry of the log.

    `of` is the operation that an undo or a redo is about. `is_undone` says whether this one has
    been undone, and not redone since. `session_id` is the session that it is about, if it is about
    one.
    """

    operation_id: str
    kind: str
    at: datetime
    by: str
    changes: tuple[OperationChange, ...]
    session_id: str | None = None
    of: str | None = None
    is_undone: bool = False

    @property
    def short_id(self) -> str:
        return ids.short(self.operation_id)

    @property
    def can_be_undone(self) -> bool:
        """Whether an undo is possible.

        False for operations that are final from the beginning (retention collects at once), and for
        those undone already.
        """
        return not self.is_undone and not any(change.kind == "checkpoints" for change in self.changes)

    def text(self) -> str:
        """Return the operation in a line."""
        changes = "; ".join(change.text() for change in self.changes[:3])
        more = f"; and {len(self.changes) - 3} more" if len(self.changes) > 3 else ""
        return f"{changes}{more}"


def _short(id_: str | None) -> str:
    return "none" if id_ is None else ids.short(id_)
