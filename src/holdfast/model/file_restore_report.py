"""Reports of a restore of files: the actions, the paths left alone, and those in no snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.file_restore_plan import KEPT, FileAction, LeftPath, WriteTotals
from holdfast.model.operation import Operation, OperationChange
from holdfast.model.reports import RollbackReport
from holdfast.model.safe_path import Flag
from holdfast.model.snapshot import SkippedPath


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport(WriteTotals):
    """A restore: `actions` were done (or would be, in a dry run), `left` and `skipped` were not.

    `safety_id` is the pinned checkpoint with everything as it was before; None if nothing had to be
    changed. `conflicts` is only filled in a dry run: a restore without `force` or `keep="user"`
    would be refused for these paths. With `force` they are `overwritten`, as the safety snapshot
    still has them. `excluded` counts the paths that the rules left out of the target; such paths
    are never written nor deleted. `state` says how the session's head moved, if it did.
    """

    dry_run: bool
    scope: str
    target_id: str | None
    safety_id: str | None
    actions: tuple[FileAction, ...] = ()
    conflicts: tuple[bytes, ...] = ()
    overwritten: tuple[bytes, ...] = ()
    left: tuple[LeftPath, ...] = ()
    flags: tuple[Flag, ...] = ()
    skipped: tuple[SkippedPath, ...] = ()
    excluded: int = 0
    state: RollbackReport | None = None

    @property
    def changed(self) -> int:
        """How many paths were changed."""
        return len({action.path for action in self.actions})

    @property
    def changed_under_us(self) -> tuple[bytes, ...]:
        """The paths that have changed since the last snapshot and that differ in the target.

        They are conflicts, were kept, or were overwritten.
        """
        kept = (path.path for path in self.left if path.reason == KEPT)
        return tuple(sorted({*self.conflicts, *self.overwritten, *kept}))

    @property
    def complete(self) -> bool:
        """Whether everything is as in the target, except for excluded paths."""
        return not self.left


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptReport:
    """The result of an adoption.

    `checkpoint_id` is the next checkpoint of the parent session, with the fork's state and the
    directory's files. `fork_id` is the fork's last one. `files` reports the changes of the
    directory, if there is one.
    """

    checkpoint_id: str
    session_id: str
    fork_id: str
    files: RestoreReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoReport:
    """The result of an undo or a redo (`kind`) of `operation`.

    It reports the changes of the files and of the head, if the operation was about these, and the
    parts that were left alone because the session has advanced. `operation_id` is that of the undo
    itself, which can be undone.

    `changes` are in the direction of the undo: from the operation's result to the state before it.
    `operation` is None for a restore of files that has no entry in the log.
    """

    kind: str
    operation: Operation | None
    dry_run: bool
    operation_id: str | None = None
    changes: tuple[OperationChange, ...] = ()
    left: tuple[str, ...] = ()
    state: RollbackReport | None = None
    files: RestoreReport | None = None
