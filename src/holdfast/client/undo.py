"""The part of the client for the operation log, undo, redo and adopt."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from holdfast.client.factory import ClientBase
from holdfast.model import ids
from holdfast.operations import validate

if TYPE_CHECKING:
    from holdfast.model.file_restore_report import AdoptReport, UndoReport
    from holdfast.model.operation import Operation
    from holdfast.workspace.api import Workspace
    from holdfast.workspace.sync import SyncWorkspace


class ClientUndo(ClientBase):
    """The part of `Client` that undoes operations."""

    async def operations(self, session_id: str | None = None, limit: int | None = 50) -> list[Operation]:
        """Lists the operation log, the newest first: who did what, and what it changed.

        It has every rollback, restore of files, expiry, retention, adoption, fork, tag and pin,
        and every undo and redo. With `session_id` those about that session; `limit=None` gives
        all. `gc` keeps the newest thousand.
        """
        from holdfast.operations import operation_log

        name = validate.optional_name("session_id", session_id)
        return await operation_log.operations(self._ctx, session_id=name, limit=validate.limit(limit))

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
        """Undoes the last operation that is not undone, or the named one. `redo` reverses it.

        `op` is an operation's id or its last digits. Refuses if later work depends on it: a
        session that has continued since, a tag that was moved again or a directory that was
        restored again is a `ConflictError` that says what is in the way. An expiry can be undone
        until `gc` has run. Files that were changed by hand since are a `WorkspaceChangedError`,
        unless `keep="user"` leaves them or `force` overwrites them. With `workspace` operations on
        other directories are skipped, as by `workspace.undo`, which is the same. It must be given
        for a directory outside the one that a local store is in: a store from elsewhere may name
        any. `by` is who undoes it. The report lists the `changes`.
        """
        return await self._take("undo", op, workspace, keep=keep, force=force, dry_run=dry_run, by=by)

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
        """Redoes what was undone last, or the named operation.

        Refuses unless everything is still as the undo has left it. A new operation ends what can
        be redone without being named.
        """
        return await self._take("redo", op, workspace, keep=keep, force=force, dry_run=dry_run, by=by)

    async def adopt(self, fork_session_id: str, session_id: str | None = None, *, by: str | None = None) -> AdoptReport:
        """Makes a fork's state the next checkpoint of the session that it was forked from.

        `session_id` names another session of the tree. The session's former head stays as a
        branch, and `undo` goes back there. With files, `workspace.adopt` does it.
        """
        from holdfast.model.file_restore_report import AdoptReport
        from holdfast.operations import adopt as adopting

        fork = validate.name("fork_session_id", fork_session_id)
        into = validate.optional_name("session_id", session_id)
        stored, last = await adopting.adopt(self._ctx, fork, into, self._origin(by))
        return AdoptReport(
            checkpoint_id=ids.to_text(stored.id), session_id=stored.session, fork_id=ids.to_text(last.id), files=None
        )

    async def _take(
        self,
        kind: str,
        op: str | None,
        workspace: str | os.PathLike[str] | Workspace | SyncWorkspace | None,
        **terms: Any,
    ) -> UndoReport:
        from holdfast.workspace import undo_history

        given = None if workspace is None else self._open_workspace(workspace)
        take = undo_history.undo if kind == "undo" else undo_history.redo
        return await take(self._ctx, undo_history.UndoTerms(op=op, directory=given, **terms), self._open_workspace)
