"""A rollback of state and files as one: both go to the checkpoint, or neither does, and one report says how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.model.reports import RollbackReport
from holdfast.objects.oplog import Origin
from holdfast.operations import arguments
from holdfast.workspace.here import Here
from holdfast.workspace.homes import refuse_another
from holdfast.workspace.restore_terms import Target, Wishes
from holdfast.workspace.restoring import Restoring, refuse

if TYPE_CHECKING:
    from holdfast.workspace.workspace import Opened


class FilesGoBack:
    """The directory of a rollback: where it goes, and what becomes of what the user has changed there."""

    def __init__(self, opened: Opened, session_id: str, to: bytes, keep: str | None, *, force: bool) -> None:
        if keep is not None:
            arguments.one_of("keep", keep, ("user",))
        if keep and force:
            raise UsageError("keep and force exclude each other: what the user changed is kept, or overwritten")
        self._opened = opened
        self._session = session_id
        self._to = ids.to_text(to)
        self._wishes = Wishes(keep="user" if keep else None, force=force)

    async def refuse(self) -> None:
        """Raises what `rollback` would be refused for, as far as that can be told now."""
        here = Here(self._opened)
        plan = await Restoring(here).plan(await self._target(), self._wishes)
        refuse(plan, self._wishes)

    async def rollback(self, terms: Mapping[str, Any], origin: Origin, *, dry_run: bool) -> RollbackReport:
        """Both, or neither. `terms` are those of `operations.rollback`."""
        here = Here(self._opened, terms, self._to)
        # What stands against it is heard before anything else; and where the session is there already, this is the report.
        planned = await here.move_head(self._session, self._to, dry_run=True)
        restoring, target = Restoring(here, origin._replace(kind="rollback")), await self._target()
        files = await (restoring.plan(target, self._wishes) if dry_run else restoring.restore(target, self._wishes))
        return replace(files.state or planned, files=replace(files, state=None))

    async def _target(self) -> Target:
        snapshot = await self._opened.snapshot_at(self._to)
        await refuse_another(self._opened, snapshot, self._to)
        return Target(snapshot=snapshot, checkpoint_id=self._to, session_id=self._session)
