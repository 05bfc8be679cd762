"""The log of operations, as people see it: what was done that was no save, and what undoing it did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model import ids

UNDO, REDO = "undo", "redo"
STEPS = (UNDO, REDO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that an operation changed, as it was before and as it was after; None where there was nothing.

    | kind | name | before, after |
    |---|---|---|
    | head | a session | the checkpoint it stands at |
    | session | a session that was begun | its first checkpoint |
    | tag | a tag | the checkpoint it names |
    | pin | a checkpoint | its note, "" if it has none |
    | checkpoint | a checkpoint | "live" or "expired" |
    | checkpoints | what let them go | None, and how many of them went |
    | files | a directory | the checkpoint with what was there, and the one that it was restored to, if there is one |
    """

    kind: str
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An entry of the log. `of` is the operation that an undo or a redo is about; `is_undone` says whether this one has been
    undone, and not redone since; `session_id` is the session that it is about, if it is about one."""

    operation_id: str
    kind: str
    at: datetime
    by: str
    changes: tuple[Change, ...]
    session_id: str | None = None
    of: str | None = None
    is_undone: bool = False

    @property
    def short_id(self) -> str:
        return ids.short(self.operation_id)

    @property
    def can_be_undone(self) -> bool:
        """False for what is final from the beginning (retention collects at once), and for what is undone already."""
        return not self.is_undone and not any(change.kind == "checkpoints" for change in self.changes)

    def text(self) -> str:
        """What it did, in a line."""
        told = "; ".join(_told(change) for change in self.changes[:3])
        more = f"; and {len(self.changes) - 3} more" if len(self.changes) > 3 else ""
        return f"{told}{more}"


def _told(change: Change) -> str:
    if change.kind == "files":
        return f"files of {change.name}"
    if change.kind == "checkpoints":
        return f"{change.after} checkpoints went"
    if change.kind == "pin":
        was, now = ("not pinned" if one is None else "pinned" for one in (change.before, change.after))
        return f"{_short(change.name)}: {was} → {now}"
    if change.kind == "checkpoint":
        return f"{_short(change.name)}: {change.before} → {change.after}"
    return f"{change.kind} {change.name!r:.60}: {_short(change.before)} → {_short(change.after)}"


def _short(id_: str | None) -> str:
    return "none" if id_ is None else ids.short(id_)
