"""The restore engine: restore, undo, resume and roll back of the files of a directory.

Plan, safety snapshot, journal, change, verify, done. A file found changed on the way is never
overwritten: then everything is put back as it was. A process that dies on the way leaves the
journal, by which the next process finishes the restore, or rolls it back. Both start from the files
they find, and lead to the target or to the safety snapshot.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from holdfast.backends.port import ABSENT, Commit, CommitConflict, Row, RowWrite
from holdfast.errors import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    ConflictError,
    CorruptError,
    HoldfastError,
    RestoreInterruptedError,
    StoreError,
    UsageError,
    WorkspaceChangedError,
)
from holdfast.format.files import file_tree
from holdfast.format.rows import restore_journal
from holdfast.format.rows.operation_log import OperationEntry as LogEntry
from holdfast.format.rows.operation_log import Origin
from holdfast.format.rows.restore_journal import DONE, RUNNING, RestoreJournal
from holdfast.model import ids
from holdfast.model.file_restore_plan import (
    PROTECTED,
    FileAction,
    LeftPath,
    RestorePlan,
    UnsafePathError,
    is_within,
    list_parents,
    make_plan,
)
from holdfast.model.file_restore_report import RestoreReport
from holdfast.model.reports import RollbackReport
from holdfast.model.snapshot import FileChange, FileEntry
from holdfast.operations import lookup, snapshot_read
from holdfast.telemetry import RESTORE_FILES, trace_operation
from holdfast.workspace import dirfd
from holdfast.workspace.restore import log_entry
from holdfast.workspace.restore.admission import AdmissionRules, SnapshotAdmission, refuse_too_much, rules_for
from holdfast.workspace.restore.apply import Applier, ChangedUnder
from holdfast.workspace.restore.contents import StoreSource, comparison
from holdfast.workspace.restore.execute import Progress, carry_out
from holdfast.workspace.restore.remains import drop_homeless, is_in_between
from holdfast.workspace.restore.request import (
    CurrentState,
    RestoreDirectory,
    RestoreOptions,
    RestoreTarget,
    join_paths,
    refuse_plan,
)

TRIES = 3  # of a forced restore, each with a safety snapshot of its own
ADOPT = "adopt"  # an operation that restores a fork's files
FEW = 16  # paths that are looked up one by one
TURN = b"\xffrestore "  # no session: these are UTF-8
KNOWN = 4  # so many snapshots back, a content is known not to be the user's own change


class RestoreEngine:
    """Restores the files of one directory."""

    def __init__(self, directory: RestoreDirectory, origin: Origin | None = None) -> None:
        """Make an engine; with `origin`, its operations are written to the operation log."""
        self._directory = directory
        self._origin = origin
        self._ctx = directory.ctx
        self._key = restore_journal.key(directory.root, Path(os.fsdecode(directory.root)).stat().st_ino)

    # -- what people ask for -------------------------------------------------------------------------------------------

    async def find_interrupted(self) -> RestoreJournal | None:
        """Return the interrupted restore that waits to be finished, if there is one."""
        journal, _ = await self._journal()
        return journal if journal is not None and journal.state == RUNNING else None

    async def find_unlogged(self) -> str | None:
        """Return the kind of the next step, an undo or a redo, if the last restore here has no log entry."""
        journal, _ = await self._journal()
        if journal is None or await log_entry.is_logged(self._ctx, journal):
            return None
        return log_entry.kind_of_undo(journal.operation)[0]

    async def plan(self, target: RestoreTarget, options: RestoreOptions) -> RestoreReport:
        """Return what `restore` would do now, without storing or changing anything."""
        journal, _ = await self._journal()
        now = await self._directory.scan()
        plan, _ = await self._plan(now, target, options, await self._list_known(target, options, journal))
        state = None
        if target.session_id is not None and target.checkpoint_id is not None and options.only is None:
            state = await self._directory.move_head(target.session_id, target.checkpoint_id, dry_run=True)
        return _report(target, plan, dry_run=True, state=state)

    @trace_operation(RESTORE_FILES)
    async def restore(self, target: RestoreTarget, options: RestoreOptions) -> RestoreReport:
        """Restore the files of the target, or refuse and change nothing."""
        async with self._turn():
            return await self._restore(target, options)

    async def _restore(self, target: RestoreTarget, options: RestoreOptions) -> RestoreReport:
        await self._refuse_interrupted()
        for tried in range(1, TRIES + 1):
            try:
                return await self._attempt(target, options)
            except ChangedUnder as changed:
                if not options.force or tried == TRIES:
                    raise WorkspaceChangedError(
                        f"{join_paths([changed.path])} was changed while the restore ran ({changed.found}). Everything "
                        "else was put back as it was. Stop what writes there, and restore again",
                        (changed.path,),
                    ) from None
        raise AssertionError("unreachable")

    @trace_operation(RESTORE_FILES)
    async def undo(self, options: RestoreOptions, entry: LogEntry | None = None) -> RestoreReport:
        """Undo the last restore of this directory, or that of an entry of the operation log.

        Undoing the undo restores again.
        """
        async with self._turn():
            return await self._undo(options, entry)

    async def _undo(self, options: RestoreOptions, entry: LogEntry | None) -> RestoreReport:
        await self._refuse_interrupted()
        back, narrowed, journal = await self._find_undo(options, entry)
        try:
            return await self._attempt(back, narrowed, journal)
        except ChangedUnder as changed:
            raise WorkspaceChangedError(
                f"{join_paths([changed.path])} was changed meanwhile ({changed.found}). Nothing was undone",
                (changed.path,),
            ) from None

    async def plan_undo(self, options: RestoreOptions, entry: LogEntry | None = None) -> RestoreReport:
        """Return what `undo` would do now."""
        back, narrowed, _ = await self._find_undo(options, entry)
        return await self.plan(back, narrowed)

    async def _find_undo(
        self, options: RestoreOptions, entry: LogEntry | None
    ) -> tuple[RestoreTarget, RestoreOptions, RestoreJournal]:
        journal, _ = await self._journal()
        if journal is None and entry is None:
            raise CheckpointNotFoundError("there is nothing to undo: no restore of this directory is known here")
        journal = await log_entry.journal_for(self._ctx, journal, entry)
        if entry is not None:
            if journal.session_id is not None:
                await self._refuse_moved_on(journal.session_id, journal.target_id)
            await self._refuse_without_safety(journal)
        safety = await snapshot_read.load(self._ctx, journal.safety)
        touched = frozenset(await self._list_touched(journal))
        session = journal.session_id if journal.from_id is not None else None
        back = RestoreTarget(snapshot=safety, checkpoint_id=journal.safety_id, session_id=session)
        return back, replace(options, only=touched), journal

    async def _refuse_moved_on(self, session_id: str, left_at: str | None) -> None:
        stands_at = await self._directory.head_of(session_id)
        if stands_at != left_at:
            raise ConflictError(
                f"session {session_id!r:.60} has gone on since: it stands at {stands_at}, not at {left_at}. Nothing "
                "was changed. `holdfast restore REF` brings files back without it"
            )

    async def _refuse_without_safety(self, journal: RestoreJournal) -> None:
        try:
            await lookup.load_live_record(self._ctx, ids.from_text(journal.safety_id))
        except (CheckpointNotFoundError, CheckpointExpiredError) as error:
            raise CheckpointExpiredError(
                f"this can't be undone any more: its safety snapshot {journal.safety_id} is gone. Those of the last "
                "restores of a directory are kept"
            ) from error

    @trace_operation(RESTORE_FILES)
    async def resume(self, *, force: bool = False) -> RestoreReport:
        """Finish a restore that was cut off."""
        async with self._turn():
            return await self._finish(forward=True, force=force)

    @trace_operation(RESTORE_FILES)
    async def roll_back(self, *, force: bool = False) -> RestoreReport:
        """Put everything back that a restore has changed which was cut off."""
        async with self._turn():
            return await self._finish(forward=False, force=force)

    def _turn(self) -> AbstractAsyncContextManager[object]:
        """Return the directory's lock within the process; between processes, the journal refuses."""
        return self._ctx.backend.lock(TURN + self._directory.root)

    # -- one restore ---------------------------------------------------------------------------------------------------

    async def _attempt(
        self, target: RestoreTarget, options: RestoreOptions, undone: RestoreJournal | None = None
    ) -> RestoreReport:
        before, row = await self._journal()
        known = await self._list_known(target, options, before)
        safety = await self._directory.take_safety("before an undo" if undone else "before a restore")
        assert safety.checkpoint_id is not None
        try:
            plan, differing = await self._plan(safety, target, options, known)
            refuse_plan(plan, options)
        except BaseException:
            await self._directory.drop_safety(safety.checkpoint_id)
            raise
        head_to = undone.from_id if undone is not None else target.checkpoint_id
        head_from = None if target.session_id is None else await self._directory.head_of(target.session_id)
        operation = log_entry.operation(self._ctx, self._origin, undone)
        if target.session_id is not None and head_to is not None and head_from != head_to:
            # Raise objections before a file is touched.
            await self._go(target.session_id, head_to, operation, dry_run=True)
        changes_nothing = plan.empty and (target.session_id is None or head_from == head_to)
        if (
            changes_nothing and undone is None
        ):  # no operation; an undo is one all the same, or the next would take it again
            await self._directory.drop_safety(safety.checkpoint_id)
            return _report(target, plan)
        only, untouched = _shorten_paths(plan.touched, differing)
        journal = RestoreJournal(
            token=secrets.token_hex(6),
            state=RUNNING,
            safety_id=safety.checkpoint_id,
            safety=safety.snapshot.reference,
            target=target.snapshot.reference,
            target_id=head_to if target.session_id is not None else target.checkpoint_id,
            scope="files" if target.session_id is None else "both",
            only=only,
            untouched=untouched,
            known=undone.known if undone is not None else tuple([target.snapshot.reference, *known][:KNOWN]),
            session_id=target.session_id,
            from_id=head_from,
            started_at_us=self._ctx.now_us(),
            process=self._ctx.this_process(),
            operation=operation,
            include_set_id=options.admission.include_set_id,
            previous=before,
        )
        await self._directory.keep_safety(safety.checkpoint_id)
        try:
            version = await self._write(journal, row)
            left = await self._change(journal, plan, safety, options.progress)
            state = await self._move_head(journal, forward=True)
            await self._mark_done(journal, version)
        except _list_endings() as error:
            await self._put_back(error, journal)
            if not isinstance(error, OSError):
                raise
            raise StoreError(f"the restore failed ({error}); everything was put back as it was") from error
        return _report(target, plan, left=left, safety_id=safety.checkpoint_id, state=state)

    async def _plan(
        self, now: CurrentState, target: RestoreTarget, options: RestoreOptions, known: Sequence[str]
    ) -> tuple[RestorePlan, set[bytes]]:
        """Return the plan, and all paths that differ."""
        wanted = snapshot_read.tree_of(target.snapshot)
        load = _overlay_nodes(now.nodes, snapshot_read.make_loader(self._ctx))
        changes = [change async for change in _diff(now.snapshot.tree, wanted, load)]
        differing = {change.path for change in changes}
        protected = (
            await self._directory.make_exclusion_test(now, target.snapshot, changes, load) if changes else _protect_none
        )
        if options.only is not None:
            changes = [change for change in changes if change.path in options.only]
        rules = await rules_for(self._ctx, target.snapshot, options.admission, load)
        changes, kept_out, standing = rules.apply(changes)
        # A missing file can't be lost: its removal by the user counts only with `keep="user"`.
        at_stake = [change for change in changes if change.before is not None or options.keep]
        changed_since = await self._changed_since(now.snapshot.tree, at_stake, known, load)
        try:
            plan = make_plan(
                changes,
                changed_since=changed_since,
                protected=protected,
                occupied=[*now.not_ours, *standing],
                keep_user=options.keep == "user",
                paths=options.paths,
            )
        except UnsafePathError as error:
            raise CorruptError(f"the snapshot can't be restored: {error}") from error
        refuse_too_much(plan, self._directory.limits)
        if options.paths:
            kept_out = [path for path in kept_out if is_within(path.path, options.paths)]
        if options.only is not None:
            kept_out += self._list_unseen(options.only - differing, now)
        if kept_out:
            plan = replace(plan, left=tuple(sorted((*plan.left, *kept_out), key=lambda path: path.path)))
        return plan, differing

    def _list_unseen(self, paths: Collection[bytes], now: CurrentState) -> list[LeftPath]:
        """Return those of these paths that exist and are now excluded: no snapshot comparison shows them."""
        not_ours = set(now.not_ours)
        return [
            LeftPath(path, PROTECTED)
            for path in paths
            if (path in not_ours or not not_ours.isdisjoint(list_parents(path)))
            and os.path.lexists(self._directory.root + b"/" + path)
        ]

    async def _changed_since(
        self, now: bytes | None, changes: Sequence[FileChange], known: Sequence[str], load: file_tree.Load
    ) -> set[bytes]:
        """Return the paths to be changed whose content no known snapshot has: changes by others."""
        foreign = {change.path: change.before for change in changes}
        for reference in known:
            if not foreign:
                break
            try:
                tree = (await snapshot_read.load(self._ctx, reference)).tree
                if tree is None:
                    continue
                if tree == now:
                    return set()
                if len(foreign) <= FEW:
                    foreign = {
                        path: state
                        for path, state in foreign.items()
                        if await file_tree.find(tree, path, load) != state
                    }
                else:
                    differing = {change.path async for change in _diff(tree, now, load)}
                    foreign = {path: state for path, state in foreign.items() if path in differing}
            except CorruptError:  # it was collected: it can't vouch for anything
                continue
        return set(foreign)

    async def _change(
        self, journal: RestoreJournal, plan: RestorePlan, now: CurrentState, progress: Progress | None
    ) -> list[LeftPath]:
        """Carry out the plan, and looks whether everything is there."""
        ctx = self._ctx
        is_content = await comparison(ctx, (entry for item in plan.actions for entry in (item.before, item.after)))
        root = dirfd.open_root(self._directory.root)
        applier = Applier(root, journal.token, is_content, now.seen)
        wrong: list[bytes] = []

        def check(left: Sequence[LeftPath]) -> None:
            wrong.extend(applier.find_wrong(_without(plan.actions, left)))

        try:
            left = await carry_out(ctx.backend, applier, plan.actions, StoreSource(ctx), progress, check=check)
        finally:
            applier.close()
            os.close(root)
        if wrong:
            raise ChangedUnder(wrong[0], "it is not what was just written there")
        return left

    async def _move_head(self, journal: RestoreJournal, *, forward: bool) -> RollbackReport | None:
        """Return the state goes with the files, after them."""
        to, other = (journal.target_id, journal.from_id) if forward else (journal.from_id, journal.target_id)
        if journal.session_id is None or to is None:
            return None
        head = await self._directory.head_of(journal.session_id)
        if _is_adoption(journal.operation) and head is not None:
            head = await self._directory.adopted_from(head) or head  # it stands for the fork's checkpoint
        if head == to or not (forward or head == other):
            return None
        return await self._go(journal.session_id, to, journal.operation if forward else None)

    async def _go(
        self, session_id: str, to: str, operation: log_entry.Named | None, *, dry_run: bool = False
    ) -> RollbackReport | None:
        """Move the session's head there, or to a child of it: a fork's state follows that of its parent."""
        if operation is None or not _is_adoption(operation):
            return await self._directory.move_head(session_id, to, dry_run=dry_run)
        id_, kind, by, of = operation
        await self._directory.adopt(session_id, to, Origin(by, kind, of, id_), dry_run=dry_run)
        return None

    # -- a restore that was cut off ------------------------------------------------------------------------------------

    async def _put_back(self, why: BaseException, ours: RestoreJournal) -> None:
        """Roll back the restore that this process began; if that fails or is cancelled, the journal stays."""
        begun = await self.find_interrupted()
        if begun is None or begun.token != ours.token:
            return
        try:
            await self._finish(forward=False, ours=True)
        except (OSError, HoldfastError, ChangedUnder) as error:
            raise RestoreInterruptedError(
                f"the restore failed ({why}), and so did putting everything back ({error}). Everything that was there "
                "is in the safety snapshot: see to the cause, then `holdfast restore --rollback` or `--resume`"
            ) from error

    async def _finish(self, *, forward: bool, force: bool = False, ours: bool = False) -> RestoreReport:
        journal, row = await self._journal()
        if journal is None or journal.state != RUNNING:
            raise CheckpointNotFoundError("no restore of this directory was cut off: there is nothing to finish")
        if not ours:
            self._refuse_running(journal)
        touched = await self._list_touched(journal)
        await self._sweep(journal, touched)
        now = await self._directory.take_safety("before finishing a restore that was cut off")
        assert now.checkpoint_id is not None
        goal = await snapshot_read.load(self._ctx, journal.target if forward else journal.safety)
        load = snapshot_read.make_loader(self._ctx)
        changes: list[FileChange] = []
        others: list[FileChange] = []
        cut = (await self._modes_of(journal)).cut
        async for change in _diff(now.snapshot.tree, goal.tree, load):
            wanted = change._replace(after=cut(change.after)) if forward else change
            (changes if change.path in touched else others).append(wanted)
        changes, homeless = drop_homeless(changes, others)
        foreign = {item.path for item in changes if not is_in_between(item.before, touched[item.path])}
        in_the_way = [change.path for change in others if change.before is not None]
        in_the_way += now.not_ours
        plan = make_plan(changes, changed_since=foreign, keep_user=not force, occupied=in_the_way)
        try:
            left = homeless + await self._change(journal, plan, now, None)
        except ChangedUnder as changed:
            raise WorkspaceChangedError(
                f"{join_paths([changed.path])} was changed meanwhile ({changed.found}). The restore is still "
                "unfinished: stop what writes there, and try again",
                (changed.path,),
            ) from None
        state = await self._move_head(journal, forward=forward)
        if foreign:
            await self._directory.keep_safety(now.checkpoint_id)
        else:
            await self._directory.drop_safety(now.checkpoint_id)
        if forward:
            await self._mark_done(journal, row)
        else:
            await self._write(journal.previous, row)
        target = RestoreTarget(
            snapshot=goal,
            checkpoint_id=journal.target_id if forward else journal.safety_id,
            session_id=journal.session_id,
        )
        return _report(target, plan, left=left, safety_id=journal.safety_id if forward else None, state=state)

    async def _sweep(self, journal: RestoreJournal, touched: Mapping[bytes, object]) -> None:
        root = dirfd.open_root(self._directory.root)
        try:
            applier = Applier(root, journal.token, lambda _descriptor, _entry: False)
            await self._ctx.backend.run_in_thread(lambda: applier.sweep(touched))
        finally:
            os.close(root)

    async def _list_touched(self, journal: RestoreJournal) -> dict[bytes, tuple[FileEntry | None, FileEntry | None]]:
        """Return the paths that a restore changes, with their entries before and after it."""
        before = await snapshot_read.load(self._ctx, journal.safety)
        after = await snapshot_read.load(self._ctx, journal.target)
        only = None if journal.only is None else frozenset(journal.only)
        untouched = frozenset(journal.untouched)
        cut = (await self._modes_of(journal)).cut
        return {
            change.path: (change.before, cut(change.after))
            async for change in _diff(before.tree, after.tree, snapshot_read.make_loader(self._ctx))
            if (change.path not in untouched if only is None else change.path in only)
        }

    async def _modes_of(self, journal: RestoreJournal) -> AdmissionRules:
        """Return how the modes of the target are set. Which paths are left out, the journal says itself."""
        target = await snapshot_read.load(self._ctx, journal.target)
        admission = SnapshotAdmission(include_git=True, include_set_id=journal.include_set_id)
        return await rules_for(self._ctx, target, admission, snapshot_read.make_loader(self._ctx))

    # -- the journal ---------------------------------------------------------------------------------------------------

    async def _journal(self) -> tuple[RestoreJournal | None, Row | None]:
        [row] = await self._ctx.backend.rows([self._key])
        return (None if row is None else restore_journal.unpack(self._key, row)), row

    async def _mark_done(self, journal: RestoreJournal, over: Row | None) -> None:
        """Mark the restore as done and log it, in one commit."""
        logged = log_entry.writes(self._ctx, self._directory.root, journal)
        await self._write(replace(journal, state=DONE, previous=None), over, logged)

    async def _write(
        self, journal: RestoreJournal | None, over: Row | None, logged: Sequence[RowWrite] = ()
    ) -> Row | None:
        value = None if journal is None else journal.pack(self._key)
        expect = ABSENT if over is None else over.version
        try:
            await self._ctx.backend.commit(Commit(tree=b"", rows=[RowWrite(self._key, value, expect), *logged]))
        except CommitConflict:
            raise ConflictError(
                "another process has begun or finished a restore of this directory at the same moment. Look at what is "
                "there, then decide again"
            ) from None
        return None if value is None else Row(value, 1 if over is None else over.version + 1)

    async def _list_known(
        self, target: RestoreTarget, options: RestoreOptions, journal: RestoreJournal | None
    ) -> list[str]:
        """Return snapshots whose contents are not changes of the user's own."""
        if options.known is not None:
            return list(options.known)
        known = await self._directory.last_known(target.checkpoint_id)
        if journal is not None:
            known += journal.known
        return list(dict.fromkeys(known))

    async def _refuse_interrupted(self) -> None:
        journal = await self.find_interrupted()
        if journal is None:
            return
        self._refuse_running(journal)
        raise RestoreInterruptedError(
            "a restore of this directory was cut off and is half done. `holdfast restore --resume` finishes it, "
            "`holdfast restore --rollback` puts back what was there before"
        )

    def _refuse_running(self, journal: RestoreJournal) -> None:
        process = journal.process
        alive = process.place and process.place == self._ctx.this_process().place
        if alive and not self._ctx.has_ended(process) and process != self._ctx.this_process():
            raise ConflictError(f"a restore of this directory is running, in process {process.pid}")


def _list_endings() -> tuple[type[BaseException], ...]:
    """Return the exceptions after which everything is put back: errors, and an event loop's cancellation."""
    loops = sys.modules.get("asyncio")  # without an event loop, asyncio need not be imported
    return (Exception, KeyboardInterrupt, *(() if loops is None else (loops.CancelledError,)))


def _diff(before: bytes | None, after: bytes | None, load: file_tree.Load) -> AsyncIterator[FileChange]:
    if before is None or after is None:
        raise UsageError("a snapshot of this directory was skipped, so there is nothing to compare with")
    return file_tree.diff(before, after, load)


def _overlay_nodes(nodes: Mapping[bytes, bytes], load: file_tree.Load) -> file_tree.Load:
    if not nodes:
        return load

    async def load_nodes(hashes: Sequence[bytes]) -> list[bytes]:
        stored = iter(await load([hash_ for hash_ in hashes if hash_ not in nodes]))
        return [nodes[hash_] if hash_ in nodes else next(stored) for hash_ in hashes]

    return load_nodes


def _is_adoption(operation: log_entry.Named | None) -> bool:
    return operation is not None and operation[1] == ADOPT


def _protect_none(_path: bytes) -> bool:
    return False


def _shorten_paths(
    touched: Collection[bytes], differing: set[bytes]
) -> tuple[tuple[bytes, ...] | None, tuple[bytes, ...]]:
    """Return (touched paths, ()) or (None, untouched paths), whichever is shorter."""
    untouched = differing.difference(touched)
    return (None, tuple(sorted(untouched))) if len(untouched) <= len(touched) else (tuple(sorted(touched)), ())


def _without(actions: tuple[FileAction, ...], left: Sequence[LeftPath]) -> tuple[FileAction, ...]:
    """Return the actions that were carried out."""
    stayed = {path.path for path in left}
    return tuple(action for action in actions if action.path not in stayed) if stayed else actions


def _report(
    target: RestoreTarget,
    plan: RestorePlan,
    *,
    left: Sequence[LeftPath] = (),
    safety_id: str | None = None,
    dry_run: bool = False,
    state: RollbackReport | None = None,
) -> RestoreReport:
    stayed = {item.path for item in left}
    return RestoreReport(
        dry_run=dry_run,
        scope="files" if target.session_id is None else "both",
        target_id=target.checkpoint_id,
        safety_id=safety_id,
        actions=_without(plan.actions, left),
        conflicts=plan.conflicts if dry_run else (),
        overwritten=() if dry_run else tuple(path for path in plan.conflicts if path not in stayed),
        left=tuple(sorted((*plan.left, *left), key=lambda item: item.path)),
        flags=plan.flags,
        skipped=target.snapshot.skipped,
        excluded=target.snapshot.excluded_count,
        state=state,
    )
