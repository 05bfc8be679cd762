"""Rollback of state and files as one: both go to the checkpoint, or neither does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.format.rows.operation_log import Origin
from holdfast.model import ids
from holdfast.model.reports import RollbackReport
from holdfast.operations import validate
from holdfast.workspace.origin import refuse_another
from holdfast.workspace.restore.directory import DirectoryState
from holdfast.workspace.restore.engine import RestoreEngine
from holdfast.workspace.restore.request import RestoreOptions, RestoreTarget, refuse_plan

if TYPE_CHECKING:
    from holdfast.workspace.core import WorkspaceCore


class FileRollback:
    """The directory of a rollback: where it goes, and what becomes of what the user has changed there."""

    def __init__(self, opened: WorkspaceCore, session_id: str, to: bytes, keep: str | None, *, force: bool) -> None:
        if keep is not None:
            validate.one_of("keep", keep, ("user",))
        if keep and force:
            raise UsageError("keep and force exclude each other: what the user changed is kept, or overwritten")
        self._opened = opened
        self._session = session_id
        self._to = ids.to_text(to)
        self._wishes = RestoreOptions(keep="user" if keep else None, force=force)

    async def refuse(self) -> None:
        """Raise the refusals of `rollback` that are known by now."""
        directory = DirectoryState(self._opened)
        plan = await RestoreEngine(directory).plan(await self._target(), self._wishes)
        refuse_plan(plan, self._wishes)

    async def rollback(self, terms: Mapping[str, Any], origin: Origin, *, dry_run: bool) -> RollbackReport:
        """Roll back both, or neither. `terms` are those of `operations.rollback`."""
        directory = DirectoryState(self._opened, terms, self._to)
        # Objections are raised first; if the session is there already, this is the report.
        planned = await directory.move_head(self._session, self._to, dry_run=True)
        restoring, target = RestoreEngine(directory, origin._replace(kind="rollback")), await self._target()
        files = await (restoring.plan(target, self._wishes) if dry_run else restoring.restore(target, self._wishes))
        return replace(files.state or planned, files=replace(files, state=None))

    async def _target(self) -> RestoreTarget:
        snapshot = await self._opened.snapshot_at(self._to)
        await refuse_another(self._opened, snapshot, self._to)
        return RestoreTarget(snapshot=snapshot, checkpoint_id=self._to, session_id=self._session)
