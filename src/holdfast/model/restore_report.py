"""What a restore of files reports: what it did, what it left as it is, and what no snapshot had in the first place."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.oplog import Operation
from holdfast.model.path_checks import Flag
from holdfast.model.reports import RollbackReport
from holdfast.model.restore_plan import KEPT, Action, Left
from holdfast.model.workspace import Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """A restore: `actions` were done (or would be, in a dry run), `left` and `skipped` were not.

    `safety_id` is the pinned checkpoint with everything as it was before; None if nothing had to be changed.
    `conflicts` is only filled in a dry run: a restore without `force` or `keep="user"` would be refused for these paths;
    with `force` they are `overwritten`, as the safety snapshot still has them.
    `excluded` counts what the rules left out of the target; such paths are never written nor deleted.
    `state` says how the session's head moved, if it did.
    """

    dry_run: bool
    scope: str
    target_id: str | None
    safety_id: str | None
    actions: tuple[Action, ...] = ()
    conflicts: tuple[bytes, ...] = ()
    overwritten: tuple[bytes, ...] = ()
    left: tuple[Left, ...] = ()
    flags: tuple[Flag, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    excluded: int = 0
    state: RollbackReport | None = None

    @property
    def changed(self) -> int:
        """How many paths were changed."""
        return len({action.path for action in self.actions})

    @property
    def changed_under_us(self) -> tuple[bytes, ...]:
        """The paths that somebody has changed since the last snapshot, and that the target has otherwise: whether they stand
        against it, were kept, or were overwritten."""
        kept = (one.path for one in self.left if one.reason == KEPT)
        return tuple(sorted({*self.conflicts, *self.overwritten, *kept}))

    @property
    def complete(self) -> bool:
        """Whether everything is as in the target, but for what is excluded."""
        return not self.left


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptReport:
    """A fork that was adopted: `checkpoint_id` is the next checkpoint of the parent session, with the fork's state and the
    directory's files; `fork_id` is the fork's last one, and `files` what was done to the directory, if there is one."""

    checkpoint_id: str
    session_id: str
    fork_id: str
    files: RestoreReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoReport:
    """An undo or a redo (`kind`) of `operation`: what became of the files and of the head, if it was about these, and what was
    left as it is because somebody has gone on from there. `operation_id` is that of the undo itself, which can be undone."""

    kind: str
    operation: Operation
    dry_run: bool
    operation_id: str | None = None
    left: tuple[str, ...] = ()
    state: RollbackReport | None = None
    files: RestoreReport | None = None
