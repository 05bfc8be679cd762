"""What a client does with the log of operations: list it, undo, redo; and adopt, which is the operation that forks are for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.errors import CheckpointNotFoundError, ConflictError, UsageError
from holdfast.model import ids
from holdfast.opening import Opening
from holdfast.operations import arguments

if TYPE_CHECKING:
    from holdfast.model.oplog import Operation
    from holdfast.model.restore_report import AdoptReport, RestoreReport, UndoReport
    from holdfast.objects.oplog import Entry, Origin
    from holdfast.operations.oplog import Step
    from holdfast.workspace.workspace import Opened, SyncWorkspace, Workspace


class Undoing(Opening):
    """The part of `Client` that takes things back."""

    async def operations(self, session_id: str | None = None, limit: int | None = 50) -> list[Operation]:
        """The log of operations, the newest first: every rollback, restore of files, expiry, retention, adoption, fork, tag and
        pin, who did it and what it changed, and every undo and redo. With `session_id` those about that session;
        `limit=None` gives all. `gc` leaves the newest thousand."""
        from holdfast.operations import oplog

        name = arguments.optional_name("session_id", session_id)
        return await oplog.operations(self._services, session_id=name, limit=arguments.limit(limit))

    async def undo(
        self,
        op: str | None = None,
        *,
        workspace: str | os.PathLike[str] | Workspace | SyncWorkspace | None = None,
        keep: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> UndoReport:
        """Takes back the last operation that is not undone, or the one that is named, by its id or the last digits of it. That
        is an operation, too: `redo` takes it back, and nothing is lost by either.

        What was built upon is left alone: a session that has gone on since, a tag that was moved again or a directory that was
        restored again is a `ConflictError` that says what stands in the way. An expiry can be undone until `gc` has run. Files
        go back as `workspace.undo` says, with `keep` and `force`; a directory that is not opened as it is by default is given as
        `workspace`, and without an id only what was done to that directory or to none is undone then. `by` is who undoes it.
        """
        from holdfast.model.oplog import UNDO

        return await self._step(UNDO, op, workspace, keep, by, force=force, dry_run=dry_run)

    async def redo(
        self,
        op: str | None = None,
        *,
        workspace: str | os.PathLike[str] | Workspace | SyncWorkspace | None = None,
        keep: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> UndoReport:
        """Does again what was undone last, or the operation that is named, if everything is still as the undo has left it."""
        from holdfast.model.oplog import REDO

        return await self._step(REDO, op, workspace, keep, by, force=force, dry_run=dry_run)

    async def adopt(self, fork_session_id: str, session_id: str | None = None, *, by: str | None = None) -> AdoptReport:
        """The state that a fork stands at becomes the next checkpoint of the session that it was forked from, or of another of
        its tree. Where that stood stays as a branch, and `undo` goes back there. With files, `workspace.adopt` does it."""
        from holdfast.model.restore_report import AdoptReport
        from holdfast.operations import adopt as adopting

        fork = arguments.name("fork_session_id", fork_session_id)
        into = arguments.optional_name("session_id", session_id)
        stored, last = await adopting.adopt(self._services, fork, into, self._origin(by))
        return AdoptReport(
            checkpoint_id=ids.to_text(stored.id), session_id=stored.session, fork_id=ids.to_text(last.id), files=None
        )

    async def _step(
        self, kind: str, ref: str | None, workspace: str | os.PathLike[str] | Workspace | SyncWorkspace | None, keep: str | None, by: str | None, *,
        force: bool, dry_run: bool,
    ) -> UndoReport:  # fmt: skip
        from dataclasses import replace

        from holdfast.model.oplog import UNDO
        from holdfast.model.restore_report import UndoReport
        from holdfast.operations import oplog, revert

        if keep is not None:
            arguments.one_of("keep", keep, ("user",))
        given = None if workspace is None else self._opened(workspace)
        if ref is not None:
            step = await oplog.named(self._services, arguments.name("op", ref), kind)
        else:
            find = oplog.next_undo if kind == UNDO else oplog.next_redo
            step = await find(self._services, lambda entry: _is_about(entry, given))
        origin = oplog.origin_of(self._services, step, self._origin(by).by)
        shown = oplog.shown(step)
        directory = _directory(step.last)
        if directory is not None:
            files = await self._files(step, directory, given, keep, origin, force=force, dry_run=dry_run)
            report = UndoReport(kind=str(origin.kind), operation=shown, dry_run=dry_run, files=files, state=files.state)
        elif dry_run:
            report = UndoReport(kind=str(origin.kind), operation=shown, dry_run=True)
        else:
            left, state = await revert.revert(self._services, step.last, origin)
            report = UndoReport(kind=str(origin.kind), operation=shown, dry_run=False, left=tuple(left), state=state)
        return report if dry_run or origin.id is None else replace(report, operation_id=ids.to_text(origin.id))

    async def _files(
        self, step: Step, directory: bytes, given: Opened | None, keep: str | None, origin: Origin, *,
        force: bool, dry_run: bool,
    ) -> RestoreReport:  # fmt: skip
        from pathlib import Path

        from holdfast.operations import oplog
        from holdfast.workspace.here import Here
        from holdfast.workspace.restore_terms import Wishes
        from holdfast.workspace.restoring import Restoring

        path = os.fsdecode(directory)
        if given is not None and os.fsencode(given.path) != directory:
            raise UsageError(
                f"operation {ids.to_text(step.operation.id)} was about the files of {path!r:.120}, not of {str(given.path)!r:.120}"
            )
        if given is None and not await self._services.backend.apart(Path(path).is_dir):
            raise CheckpointNotFoundError(
                f"operation {ids.to_text(step.operation.id)} was about the files of {path!r:.120}, which is not there: it was "
                "made on another machine, or the directory was moved or removed"
            )
        later = await oplog.files_since(self._services, step, directory)
        if later is not None:
            raise ConflictError(
                f"operation {ids.to_text(later.id)} ({later.kind}) has changed the files of {path!r:.120} later: undo that one "
                f"first (`holdfast undo {ids.to_text(later.id)[-8:]}`)"
            )
        opened = given if given is not None else self._opened(path)
        restoring = Restoring(Here(opened), origin)
        wishes = Wishes(keep="user" if keep else None, force=force)
        return await (restoring.plan_undo if dry_run else restoring.undo)(wishes, step.last)

    def _opened(self, workspace: str | os.PathLike[str] | Workspace | SyncWorkspace) -> Opened:
        from holdfast.workspace.workspace import opened

        return opened(self._services, self._workspaces, workspace)


def _directory(entry: Entry) -> bytes | None:
    """The directory whose files an entry has changed."""
    return next((change.name for change in entry.changes if change.kind == "files"), None)


def _is_about(entry: Entry, given: Opened | None) -> bool:
    """Whether it is one that may be taken back without being named: not what was done to another directory."""
    directory = _directory(entry)
    return directory is None or given is None or os.fsencode(given.path) == directory
