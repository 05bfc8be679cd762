"""Going back, and going two ways: what a workspace does to its directory. `Workspace` and `SyncWorkspace` have it from here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast import processes
from holdfast.backends.stepping import run_inline
from holdfast.errors import CheckpointNotFoundError, UsageError
from holdfast.model import ids
from holdfast.model.restore_report import AdoptReport, RestoreReport
from holdfast.model.workspace import Forked, Snapshot
from holdfast.objects.oplog import Origin
from holdfast.operations import arguments, reading, rollback, snapshots
from holdfast.workspace.carrying_out import Progress
from holdfast.workspace.guards import refuse_if_gone
from holdfast.workspace.here import Here
from holdfast.workspace.homes import refuse_another
from holdfast.workspace.restore_terms import Target, Wishes
from holdfast.workspace.restoring import Restoring

if TYPE_CHECKING:
    from holdfast.model.editing import Edits
    from holdfast.model.workspace import InterruptedRestore
    from holdfast.workspace.workspace import Opened

SCOPES = ("files", "state", "both")
At = str | Snapshot
Path = str | bytes | os.PathLike[str]


class Restores:
    """Restores the directory of an open workspace."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    async def restore(
        self,
        target: At,
        *,
        scope: str,
        keep: str | None,
        paths: Sequence[Path],
        force: bool,
        dry_run: bool,
        escape: str,
        session_id: str | None,
        progress: Progress | None,
        any_directory: bool,
    ) -> RestoreReport:
        arguments.one_of("scope", scope, SCOPES)
        arguments.one_of("escape", escape, ("warn", "refuse"))
        if keep is not None:
            arguments.one_of("keep", keep, ("user",))
        if keep and force:
            raise UsageError("keep and force exclude each other: what the user changed is kept, or overwritten")
        if paths and scope != "files":
            raise UsageError("single paths are files only: a state goes back as a whole")
        session = await self._session(target, scope, session_id)
        if scope == "state":
            return await self._state(target, session, dry_run=dry_run)
        aim = Target(
            snapshot=await self._opened.snapshot_at(target),
            checkpoint_id=target if isinstance(target, str) else None,
            session_id=session,
        )
        if not any_directory:
            await refuse_another(self._opened, aim.snapshot, aim.checkpoint_id)
        wishes = Wishes(
            keep="user" if keep else None,
            force=force,
            paths=await self._named(paths, aim.snapshot),
            escape="refuse" if escape == "refuse" else "warn",
            progress=progress,
        )
        restoring = self._restoring()
        return await (restoring.plan(aim, wishes) if dry_run else restoring.restore(aim, wishes))

    async def _named(self, paths: Sequence[Path], target: Snapshot) -> tuple[bytes, ...]:
        """The paths as a plan takes them. One that is neither there nor in the target is a mistake; the root is all of it."""
        if any(self._opened.is_root(path) for path in paths):
            return ()
        named = [self._opened.relative(path) for path in paths]
        for path in named:
            if await snapshots.find(self._opened.services, target, path) is None and not self._opened.is_there(path):
                raise CheckpointNotFoundError(
                    f"nothing was restored: {os.fsdecode(path)!r:.120} is neither among the files of that checkpoint nor in "
                    f"{str(self._opened.path)!r:.120}"
                )
        return tuple(named)

    def _restoring(self) -> Restoring:
        refuse_if_gone(self._opened.path)
        return Restoring(Here(self._opened), Origin(processes.default_holder()))

    def _finishing(self) -> Restoring:
        """What was begun is written down as who began it wanted."""
        refuse_if_gone(self._opened.path)
        return Restoring(Here(self._opened))

    async def undo(self, *, keep: str | None, force: bool, dry_run: bool) -> RestoreReport:
        wishes = Wishes(keep="user" if keep else None, force=force)
        restoring = self._restoring()
        return await (restoring.plan_undo(wishes) if dry_run else restoring.undo(wishes))

    async def resume(self, *, force: bool) -> RestoreReport:
        return await self._finishing().resume(force=force)

    async def roll_back(self, *, force: bool) -> RestoreReport:
        return await self._finishing().roll_back(force=force)

    async def interrupted(self) -> InterruptedRestore | None:
        from datetime import UTC, datetime

        from holdfast.model.workspace import InterruptedRestore

        journal = await self._finishing().interrupted()
        if journal is None:
            return None
        started_at = datetime.fromtimestamp(journal.started_at_us / 1e6, UTC)
        return InterruptedRestore(target_id=journal.target_id, safety_id=journal.safety_id, started_at=started_at)

    async def fork(
        self,
        target: At,
        directory: str | os.PathLike[str],
        *,
        session_id: str | None,
        edits: Edits | None,
        progress: Progress | None,
    ) -> Forked:
        from holdfast.workspace import forking

        name = arguments.optional_name("session_id", session_id)
        if edits and not isinstance(target, str):
            raise UsageError(
                "set edits the state of a checkpoint, and a snapshot has none: fork the checkpoint by its id"
            )
        return await forking.fork(self._opened, target, directory, session_id=name, progress=progress, edits=edits)

    async def adopt(
        self,
        fork: Forked | str | os.PathLike[str],
        fork_session_id: str | None,
        *,
        session_id: str | None,
        keep: str | None,
        force: bool,
    ) -> AdoptReport:
        from holdfast.workspace import adopting, forking

        directory = fork.directory if isinstance(fork, Forked) else fork
        session = fork.session_id if isinstance(fork, Forked) and fork_session_id is None else fork_session_id
        if session is None:
            raise UsageError("adopt needs the session of the fork: fork_session_id")
        return await adopting.adopt(
            self._opened,
            forking.opened_like(self._opened, directory),
            arguments.name("fork_session_id", session),
            session_id=arguments.optional_name("session_id", session_id),
            keep=keep,
            force=force,
        )

    async def _session(self, target: At, scope: str, session_id: str | None) -> str | None:
        """The session whose state goes back, too."""
        if scope == "files":
            if session_id is not None:
                raise UsageError('session_id names the session whose state goes back: say scope="both" or "state"')
            return None
        if isinstance(target, Snapshot):
            raise UsageError("a snapshot has no state: name the checkpoint that it belongs to")
        if session_id is not None:
            return arguments.name("session_id", session_id)
        return (await reading.live_record(self._opened.services, ids.from_text(target))).session

    async def _state(self, target: At, session: str | None, *, dry_run: bool) -> RestoreReport:
        assert isinstance(target, str)
        assert session is not None
        origin = Origin(processes.default_holder())
        services, to = self._opened.services, ids.from_text(target)
        done = await rollback.rollback(services, session, to, dry_run=dry_run, origin=origin)
        return RestoreReport(dry_run=dry_run, scope="state", target_id=target, safety_id=None, state=done)


class Restorable:
    """The part of `Workspace` that goes back."""

    _opened: Opened

    async def plan(
        self,
        target: At,
        *,
        keep: str | None = None,
        paths: Sequence[Path] = (),
        escape: str = "warn",
        any_directory: bool = False,
    ) -> RestoreReport:
        """What `restore` would do to the files now. Nothing is stored and nothing is changed."""
        return await self.restore(
            target, keep=keep, paths=paths, escape=escape, any_directory=any_directory, dry_run=True
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
    ) -> RestoreReport:
        """Makes the directory what it was at a checkpoint: its files, with `scope="both"` the session's state, too, with
        "state" that alone. All of it or nothing; `undo` takes it back.

        Everything that is there is in a pinned safety snapshot before the first file is touched. Where files have changed
        since the last snapshot and would be overwritten, it is refused with a list (`WorkspaceChangedError`), unless
        `keep="user"` leaves these as they are or `force` overwrites them. What rules exclude, then or now, is neither
        written nor deleted. `paths` narrows it to files and directories. `escape="refuse"` refuses links that lead out
        of the directory. What was taken of another directory is refused, unless this one is empty or a fork of it, or
        `any_directory` says that it is meant. The report lists what was done, and what was left.
        """
        return await Restores(self._opened).restore(
            target,
            scope=scope,
            keep=keep,
            paths=paths,
            force=force,
            dry_run=dry_run,
            escape=escape,
            session_id=session_id,
            progress=progress,
            any_directory=any_directory,
        )

    async def undo(self, *, keep: str | None = None, force: bool = False, dry_run: bool = False) -> RestoreReport:
        """Takes back the last restore of this directory: the files that it changed, and the state if it moved that. Undoing
        an undo does it again."""
        return await Restores(self._opened).undo(keep=keep, force=force, dry_run=dry_run)

    async def interrupted(self) -> InterruptedRestore | None:
        """The restore of this directory that was cut off and waits for `resume` or `roll_back`; None if there is none."""
        return await Restores(self._opened).interrupted()

    async def resume(self, *, force: bool = False) -> RestoreReport:
        """Finishes a restore that was cut off. What was changed since by others is left as it is, unless `force`."""
        return await Restores(self._opened).resume(force=force)

    async def roll_back(self, *, force: bool = False) -> RestoreReport:
        """Puts back what a restore has changed that was cut off."""
        return await Restores(self._opened).roll_back(force=force)

    async def fork(
        self,
        target: At,
        directory: str | os.PathLike[str],
        *,
        session_id: str | None = None,
        set: Edits | None = None,  # noqa: A002 - as in `client.fork`
        progress: Progress | None = None,
    ) -> Forked:
        """A second directory as it was at a checkpoint, and a session that goes on from there, with the edits of `set` made as
        by `client.fork`: for trying two ways on the same files. Cheap where the file system can share (a reflink), else copied, else from the store. `client.workspace(
        forked.directory, session_id=forked.session_id)` works in it; `adopt` brings it back."""
        return await Restores(self._opened).fork(target, directory, session_id=session_id, edits=set, progress=progress)

    async def adopt(
        self,
        fork: Forked | str | os.PathLike[str],
        fork_session_id: str | None = None,
        *,
        session_id: str | None = None,
        keep: str | None = None,
        force: bool = False,
    ) -> AdoptReport:
        """Brings the files and the state of a fork back: this directory gets its files, as `restore` does it, and its session
        the fork's state, as its next checkpoint. What has changed here since the fork was made, and would be overwritten, is
        refused as by `restore`, whether a snapshot has it or not. `fork` is what `fork` gave, or the fork's directory with its
        session."""
        return await Restores(self._opened).adopt(fork, fork_session_id, session_id=session_id, keep=keep, force=force)


class SyncRestorable:
    """The same without `await`."""

    _opened: Opened

    def plan(
        self,
        target: At,
        *,
        keep: str | None = None,
        paths: Sequence[Path] = (),
        escape: str = "warn",
        any_directory: bool = False,
    ) -> RestoreReport:
        return self.restore(target, keep=keep, paths=paths, escape=escape, any_directory=any_directory, dry_run=True)

    def restore(
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
    ) -> RestoreReport:
        return run_inline(
            Restores(self._opened).restore(
                target,
                scope=scope,
                keep=keep,
                paths=paths,
                force=force,
                dry_run=dry_run,
                escape=escape,
                session_id=session_id,
                progress=progress,
                any_directory=any_directory,
            )
        )

    def undo(self, *, keep: str | None = None, force: bool = False, dry_run: bool = False) -> RestoreReport:
        return run_inline(Restores(self._opened).undo(keep=keep, force=force, dry_run=dry_run))

    def interrupted(self) -> InterruptedRestore | None:
        return run_inline(Restores(self._opened).interrupted())

    def resume(self, *, force: bool = False) -> RestoreReport:
        return run_inline(Restores(self._opened).resume(force=force))

    def roll_back(self, *, force: bool = False) -> RestoreReport:
        return run_inline(Restores(self._opened).roll_back(force=force))

    def fork(
        self,
        target: At,
        directory: str | os.PathLike[str],
        *,
        session_id: str | None = None,
        set: Edits | None = None,  # noqa: A002 - as in `client.fork`
        progress: Progress | None = None,
    ) -> Forked:
        return run_inline(
            Restores(self._opened).fork(target, directory, session_id=session_id, edits=set, progress=progress)
        )

    def adopt(
        self,
        fork: Forked | str | os.PathLike[str],
        fork_session_id: str | None = None,
        *,
        session_id: str | None = None,
        keep: str | None = None,
        force: bool = False,
    ) -> AdoptReport:
        return run_inline(
            Restores(self._opened).adopt(fork, fork_session_id, session_id=session_id, keep=keep, force=force)
        )
