"""The part of a workspace that changes its directory: restore, undo, fork and adopt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.coordination import process
from holdfast.errors import CheckpointNotFoundError, UsageError
from holdfast.format.rows.operation_log import Origin
from holdfast.model import ids
from holdfast.model.file_restore_report import AdoptReport, RestoreReport, UndoReport
from holdfast.model.snapshot import ForkedWorkspace, Snapshot
from holdfast.operations import lookup, rollback, snapshot_read, validate
from holdfast.workspace.limits import refuse_if_gone
from holdfast.workspace.origin import refuse_another
from holdfast.workspace.restore.admission import SnapshotAdmission
from holdfast.workspace.restore.directory import DirectoryState
from holdfast.workspace.restore.engine import RestoreEngine
from holdfast.workspace.restore.execute import Progress
from holdfast.workspace.restore.request import RestoreOptions, RestoreTarget

if TYPE_CHECKING:
    from holdfast.model.path_edit import Edits
    from holdfast.model.snapshot import InterruptedRestore
    from holdfast.workspace.core import WorkspaceCore

SCOPES = ("files", "state", "both")
At = str | Snapshot
Path = str | bytes | os.PathLike[str]


class WorkspaceRestore:
    """The part of `Workspace` that changes its directory."""

    _opened: WorkspaceCore

    async def plan(
        self,
        target: At,
        *,
        keep: str | None = None,
        paths: Sequence[Path] = (),
        escape: str = "warn",
        any_directory: bool = False,
        include_git: bool = False,
        include_set_id: bool = False,
    ) -> RestoreReport:
        """Return the changes that `restore` would make to the files now, without storing or changing any."""
        return await self.restore(
            target,
            keep=keep,
            paths=paths,
            escape=escape,
            any_directory=any_directory,
            include_git=include_git,
            include_set_id=include_set_id,
            dry_run=True,
        )

    async def restore(
        self,
        target: At,
        *,
        scope: str = "files",
        keep: str | None = None,
        paths: Sequence[Path] = (),
        force: bool = False,
        dry_run: bool = False,
        escape: str = "warn",
        session_id: str | None = None,
        progress: Progress | None = None,
        any_directory: bool = False,
        include_git: bool = False,
        include_set_id: bool = False,
    ) -> RestoreReport:
        """Restore the directory to a checkpoint: its files, the session's state, or both, by `scope`.

        `scope="both"` restores the session's state, too; "state" restores that alone. A restore is
        atomic, and `undo` reverts it.

        Everything in the directory is in a pinned safety snapshot before the first file is touched.
        If files have changed since the last snapshot and would be overwritten, the restore is
        refused with a list (`WorkspaceChangedError`), unless `keep="user"` leaves these as they are
        or `force` overwrites them. Paths that rules exclude, then or now, are neither written nor
        deleted.

        `paths` narrows the restore to files and directories. `escape="refuse"` refuses links that
        lead out of the directory. A snapshot of another directory is refused, unless this one is
        empty or a fork of it, or `any_directory` allows it. From an imported snapshot, files of
        repositories are not written and set-id bits are not set, unless `include_git` and
        `include_set_id` ask for them. The report lists the changes and the paths that were left as
        they are.
        """
        validate.one_of("scope", scope, SCOPES)
        validate.one_of("escape", escape, ("warn", "refuse"))
        if keep is not None:
            validate.one_of("keep", keep, ("user",))
        if keep and force:
            raise UsageError("keep and force exclude each other: what the user changed is kept, or overwritten")
        if paths and scope != "files":
            raise UsageError("single paths are files only: a state goes back as a whole")
        target = await self._opened.resolve_exactly(target)
        session = await self._session(target, scope, session_id)
        if scope == "state":
            return await self._state(target, session, dry_run=dry_run)
        aim = RestoreTarget(
            snapshot=await self._opened.snapshot_at(target),
            checkpoint_id=target if isinstance(target, str) else None,
            session_id=session,
        )
        if not any_directory:
            await refuse_another(self._opened, aim.snapshot, aim.checkpoint_id)
        options = RestoreOptions(
            keep="user" if keep else None,
            force=force,
            paths=await self._name_paths(paths, aim.snapshot),
            escape="refuse" if escape == "refuse" else "warn",
            progress=progress,
            admission=SnapshotAdmission(include_git, include_set_id),
        )
        restoring = self._make_engine()
        return await (restoring.plan(aim, options) if dry_run else restoring.restore(aim, options))

    async def undo(
        self,
        op: str | None = None,
        *,
        keep: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> UndoReport:
        """Undo the last operation that is not undone: the same as `client.undo` with this workspace.

        Operations on other directories are skipped.
        """
        return await self._take_back("undo", op, keep=keep, force=force, dry_run=dry_run, by=by)

    async def redo(
        self,
        op: str | None = None,
        *,
        keep: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> UndoReport:
        """Redo the last undone operation: the same as `client.redo` with this workspace."""
        return await self._take_back("redo", op, keep=keep, force=force, dry_run=dry_run, by=by)

    async def interrupted(self) -> InterruptedRestore | None:
        """Return the interrupted restore of this directory, which waits for `resume` or `roll_back`, or None."""
        from datetime import UTC, datetime

        from holdfast.model.snapshot import InterruptedRestore

        journal = await self._make_finishing_engine().find_interrupted()
        if journal is None:
            return None
        started_at = datetime.fromtimestamp(journal.started_at_us / 1e6, UTC)
        return InterruptedRestore(target_id=journal.target_id, safety_id=journal.safety_id, started_at=started_at)

    async def resume(self, *, force: bool = False) -> RestoreReport:
        """Finish an interrupted restore.

        Files that others have changed since are left as they are, unless `force`.
        """
        return await self._make_finishing_engine().resume(force=force)

    async def roll_back(self, *, force: bool = False) -> RestoreReport:
        """Roll back an interrupted restore."""
        return await self._make_finishing_engine().roll_back(force=force)

    async def fork(
        self,
        target: At,
        directory: str | os.PathLike[str],
        *,
        session_id: str | None = None,
        set: Edits | None = None,  # noqa: A002 - as in `client.fork`
        progress: Progress | None = None,
        include_git: bool = False,
        include_set_id: bool = False,
    ) -> ForkedWorkspace:
        """Make a second directory as it was at a checkpoint, and a session that continues from there.

        It is for trying two ways on the same files. `set` edits the state as in `client.fork`.
        Files are shared where the file system can (a reflink), else copied, else read from the
        store. `client.workspace(forked.directory, session_id=forked.session_id)` works in the fork;
        `adopt` brings it back.

        The root's own `.git` is written with `include_git`, or if the workspace was opened with it.
        `include_git` and `include_set_id` are as in `restore`.
        """
        from holdfast.workspace import fork as forking

        name = validate.optional_name("session_id", session_id)
        if set and not isinstance(target, str):
            raise UsageError(
                "set edits the state of a checkpoint, and a snapshot has none: fork the checkpoint by its id"
            )
        return await forking.fork(
            self._opened,
            target,
            directory,
            session_id=name,
            progress=progress,
            edits=set,
            admission=SnapshotAdmission(include_git, include_set_id),
        )

    async def adopt(
        self,
        fork: ForkedWorkspace | str | os.PathLike[str],
        fork_session_id: str | None = None,
        *,
        session_id: str | None = None,
        keep: str | None = None,
        force: bool = False,
    ) -> AdoptReport:
        """Adopt the files and the state of a fork.

        This directory gets the fork's files, as by `restore`; its session gets the fork's state as
        its next checkpoint. Files that have changed here since the fork was made, and would be
        overwritten, are refused as by `restore`, whether a snapshot has them or not. `fork` is the
        result of `fork`, or the fork's directory with its session.
        """
        from holdfast.workspace import adopt as adopting
        from holdfast.workspace import fork as forking

        directory = fork.directory if isinstance(fork, ForkedWorkspace) else fork
        session = fork.session_id if isinstance(fork, ForkedWorkspace) and fork_session_id is None else fork_session_id
        if session is None:
            raise UsageError("adopt needs the session of the fork: fork_session_id")
        return await adopting.adopt(
            self._opened,
            forking.opened_like(self._opened, directory),
            validate.name("fork_session_id", session),
            session_id=validate.optional_name("session_id", session_id),
            keep=keep,
            force=force,
        )

    async def _name_paths(self, paths: Sequence[Path], target: Snapshot) -> tuple[bytes, ...]:
        """Return the paths in the form that a plan takes; the root means all of it.

        A path that is neither in the directory nor in the target is an error.
        """
        if any(self._opened.is_root(path) for path in paths):
            return ()
        named = [self._opened.relative(path) for path in paths]
        for path in named:
            if await snapshot_read.find(self._opened.ctx, target, path) is None and not self._opened.exists(path):
                raise CheckpointNotFoundError(
                    f"nothing was restored: {os.fsdecode(path)!r:.120} is neither among the files of that checkpoint "
                    f"nor in {str(self._opened.path)!r:.120}"
                )
        return tuple(named)

    def _make_engine(self) -> RestoreEngine:
        refuse_if_gone(self._opened.path)
        return RestoreEngine(DirectoryState(self._opened), Origin(process.default_holder()))

    def _make_finishing_engine(self) -> RestoreEngine:
        """Return an engine that logs the rest of a restore under its original requester."""
        refuse_if_gone(self._opened.path)
        return RestoreEngine(DirectoryState(self._opened))

    async def _take_back(self, kind: str, op: str | None, **terms: Any) -> UndoReport:
        """Undo or redo, as the client does it, for this directory."""
        from holdfast.workspace import undo_history

        take = undo_history.undo if kind == "undo" else undo_history.redo
        given = undo_history.UndoTerms(op=op, directory=self._opened, **terms)
        return await take(self._opened.ctx, given, lambda _path: self._opened)

    async def _session(self, target: At, scope: str, session_id: str | None) -> str | None:
        """Return the session whose state is restored, too."""
        if scope == "files":
            if session_id is not None:
                raise UsageError('session_id names the session whose state goes back: say scope="both" or "state"')
            return None
        if isinstance(target, Snapshot):
            raise UsageError("a snapshot has no state: name the checkpoint that it belongs to")
        if session_id is not None:
            return validate.name("session_id", session_id)
        return (await lookup.load_live_record(self._opened.ctx, ids.from_text(target))).session

    async def _state(self, target: At, session: str | None, *, dry_run: bool) -> RestoreReport:
        assert isinstance(target, str)
        assert session is not None
        origin = Origin(process.default_holder())
        ctx, to = self._opened.ctx, ids.from_text(target)
        done = await rollback.rollback(ctx, session, to, dry_run=dry_run, origin=origin)
        return RestoreReport(dry_run=dry_run, scope="state", target_id=target, safety_id=None, state=done)
