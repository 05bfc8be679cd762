"""restore, undo, resume and roll_back of a directory's files.

Plan, safety snapshot, journal, change, verify, done. What is found changed on the way is never overwritten: then everything
is put back as it was. A process that dies on the way leaves the journal, by which whoever comes next finishes the restore,
or rolls it back; both start from what they find, and lead to the target or to the safety snapshot.
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
from holdfast.codec.decoding import collector_paused
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
from holdfast.model import ids
from holdfast.model.reports import RollbackReport
from holdfast.model.restore_plan import PROTECTED, Action, Left, RestorePlan, UnsafePathError, make_plan, parents
from holdfast.model.restore_report import RestoreReport
from holdfast.model.workspace import Entry, FileChange
from holdfast.objects import filetree, restore_journal
from holdfast.objects.oplog import Entry as LogEntry
from holdfast.objects.oplog import Origin
from holdfast.objects.restore_journal import DONE, RUNNING, Journal
from holdfast.operations import reading, snapshots
from holdfast.workspace import descriptors, restore_log, sharing
from holdfast.workspace.apply import Applier, ChangedUnder
from holdfast.workspace.carrying_out import Progress, carry_out
from holdfast.workspace.restore_contents import StoreSource, comparison
from holdfast.workspace.restore_terms import Directory, Taken, Target, Wishes

TRIES = 3  # of a forced restore, each with a safety snapshot of its own
LISTED = 12
ADOPT = "adopt"  # an operation: what it restores is a fork's
FEW = 16  # paths that are looked up one by one
TURN = b"\xffrestore "  # no session: these are UTF-8
LOOKS, PATIENCE = 600, 30.0  # how often, in how many seconds, it is looked whether workers of a dead process have ended
KNOWN = 4  # so many snapshots back, a content is known not to be the user's own change


class Restoring:
    """Restores the files of one directory."""

    def __init__(self, directory: Directory, origin: Origin | None = None) -> None:
        """`origin` says who asks for it: what is done is written to the log of operations then."""
        self._directory = directory
        self._origin = origin
        self._services = directory.services
        self._key = restore_journal.key(directory.root, Path(os.fsdecode(directory.root)).stat().st_ino)

    # -- what people ask for -------------------------------------------------------------------------------------------

    async def interrupted(self) -> Journal | None:
        """The restore that was cut off and waits to be finished, if there is one."""
        journal, _ = await self._journal()
        return journal if journal is not None and journal.state == RUNNING else None

    async def plan(self, target: Target, wishes: Wishes) -> RestoreReport:
        """What `restore` would do now. Nothing is stored, nothing is changed."""
        journal, _ = await self._journal()
        now = await self._directory.look()
        plan, _ = await self._plan(now, target, wishes, await self._known(target, wishes, journal))
        state = None
        if target.session_id is not None and target.checkpoint_id is not None and wishes.only is None:
            state = await self._directory.move_head(target.session_id, target.checkpoint_id, dry_run=True)
        return _report(target, plan, dry_run=True, state=state)

    async def restore(self, target: Target, wishes: Wishes) -> RestoreReport:
        """Makes the files those of the target, or refuses and changes nothing."""
        async with self._turn():
            return await self._restore(target, wishes)

    async def _restore(self, target: Target, wishes: Wishes) -> RestoreReport:
        await self._refuse_interrupted()
        for tried in range(1, TRIES + 1):
            try:
                return await self._attempt(target, wishes)
            except ChangedUnder as changed:
                if not wishes.force or tried == TRIES:
                    raise WorkspaceChangedError(
                        f"{_names([changed.path])} was changed while the restore ran ({changed.found}). Everything else "
                        "was put back as it was. Stop what writes there, and restore again",
                        (changed.path,),
                    ) from None
        raise AssertionError("unreachable")

    async def undo(self, wishes: Wishes, entry: LogEntry | None = None) -> RestoreReport:
        """Puts back what the last restore of this directory changed, or that of an entry of the log of operations. Undoing that
        does it again."""
        async with self._turn():
            return await self._undo(wishes, entry)

    async def _undo(self, wishes: Wishes, entry: LogEntry | None) -> RestoreReport:
        await self._refuse_interrupted()
        back, narrowed, journal = await self._undoing(wishes, entry)
        try:
            return await self._attempt(back, narrowed, journal)
        except ChangedUnder as changed:
            raise WorkspaceChangedError(
                f"{_names([changed.path])} was changed meanwhile ({changed.found}). Nothing was undone", (changed.path,)
            ) from None

    async def plan_undo(self, wishes: Wishes, entry: LogEntry | None = None) -> RestoreReport:
        """What `undo` would do now."""
        back, narrowed, _ = await self._undoing(wishes, entry)
        return await self.plan(back, narrowed)

    async def _undoing(self, wishes: Wishes, entry: LogEntry | None) -> tuple[Target, Wishes, Journal]:
        journal, _ = await self._journal()
        if journal is None and entry is None:
            raise CheckpointNotFoundError("there is nothing to undo: no restore of this directory is known here")
        journal = await restore_log.as_logged(self._services, journal, entry)
        if entry is not None:
            if journal.session_id is not None:
                await self._refuse_moved_on(journal.session_id, journal.target_id)
            await self._refuse_without_safety(journal)
        safety = await snapshots.load(self._services, journal.safety)
        touched = frozenset(await self._touched(journal))
        session = journal.session_id if journal.from_id is not None else None
        back = Target(snapshot=safety, checkpoint_id=journal.safety_id, session_id=session)
        return back, replace(wishes, only=touched), journal

    async def _refuse_moved_on(self, session_id: str, left_at: str | None) -> None:
        stands_at = await self._directory.head_of(session_id)
        if stands_at != left_at:
            raise ConflictError(
                f"session {session_id!r:.60} has gone on since: it stands at {stands_at}, not at {left_at}. Nothing was changed. "
                "`holdfast restore REF` brings files back without it"
            )

    async def _refuse_without_safety(self, journal: Journal) -> None:
        try:
            await reading.live_record(self._services, ids.from_text(journal.safety_id))
        except (CheckpointNotFoundError, CheckpointExpiredError) as error:
            raise CheckpointExpiredError(
                f"this can't be undone any more: its safety snapshot {journal.safety_id} is gone. Those of the last restores of "
                "a directory are kept"
            ) from error

    async def resume(self, *, force: bool = False) -> RestoreReport:
        """Finishes a restore that was cut off."""
        async with self._turn():
            return await self._finish(forward=True, force=force)

    async def roll_back(self, *, force: bool = False) -> RestoreReport:
        """Puts everything back that a restore has changed which was cut off."""
        async with self._turn():
            return await self._finish(forward=False, force=force)

    def _turn(self) -> AbstractAsyncContextManager[object]:
        """Within a process, restores of a directory go one after the other; between processes, the journal refuses."""
        return self._services.backend.turn(TURN + self._directory.root)

    # -- one restore ---------------------------------------------------------------------------------------------------

    async def _attempt(self, target: Target, wishes: Wishes, undone: Journal | None = None) -> RestoreReport:
        before, row = await self._journal()
        known = await self._known(target, wishes, before)
        safety = await self._directory.take_safety("before an undo" if undone else "before a restore")
        assert safety.checkpoint_id is not None
        try:
            plan, differing = await self._plan(safety, target, wishes, known)
            refuse(plan, wishes)
        except BaseException:
            await self._directory.drop_safety(safety.checkpoint_id)
            raise
        head_to = undone.from_id if undone is not None else target.checkpoint_id
        head_from = None if target.session_id is None else await self._directory.head_of(target.session_id)
        operation = restore_log.operation(self._services, self._origin, undone)
        if target.session_id is not None and head_to is not None and head_from != head_to:
            # What stands against it is heard before a file is touched.
            await self._go(target.session_id, head_to, operation, dry_run=True)
        if plan.empty and (target.session_id is None or head_from == head_to):
            await self._directory.drop_safety(safety.checkpoint_id)
            return _report(target, plan)
        only, untouched = _briefly(plan.touched, differing)
        journal = Journal(
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
            started_at_us=self._services.now_us(),
            process=self._services.this_process(),
            operation=operation,
            previous=before,
        )
        await self._directory.keep_safety(safety.checkpoint_id)
        try:
            version = await self._write(journal, row)
            left = await self._change(journal, plan, safety, wishes.progress)
            state = await self._move_head(journal, forward=True)
            await self._done(journal, version)
        except _endings() as error:
            await self._put_back(error, journal)
            if not isinstance(error, OSError):
                raise
            raise StoreError(f"the restore failed ({error}); everything was put back as it was") from error
        return _report(target, plan, left=left, safety_id=safety.checkpoint_id, state=state)

    async def _plan(
        self, now: Taken, target: Target, wishes: Wishes, known: Sequence[str]
    ) -> tuple[RestorePlan, set[bytes]]:
        """The plan, and all paths that differ."""
        with collector_paused():  # all of it is made to stay
            return await self._planned(now, target, wishes, known)

    async def _planned(
        self, now: Taken, target: Target, wishes: Wishes, known: Sequence[str]
    ) -> tuple[RestorePlan, set[bytes]]:
        wanted = snapshots.tree_of(target.snapshot)
        load = _overlaid(now.nodes, snapshots.loader(self._services))
        changes = [change async for change in _diff(now.snapshot.tree, wanted, load)]
        differing = {change.path for change in changes}
        protected = await self._directory.protected(now, target.snapshot, changes, load) if changes else _nothing
        if wishes.only is not None:
            changes = [change for change in changes if change.path in wishes.only]
        # Where nothing is, nothing can be lost: that the user removed it counts only for who keeps the user's changes.
        at_stake = [change for change in changes if change.before is not None or wishes.keep]
        changed_since = await self._changed_since(now.snapshot.tree, at_stake, known, load)
        try:
            plan = make_plan(
                changes,
                changed_since=changed_since,
                protected=protected,
                occupied=now.not_ours,
                keep_user=wishes.keep == "user",
                paths=wishes.paths,
            )
        except UnsafePathError as error:
            raise CorruptError(f"the snapshot can't be restored: {error}") from error
        if wishes.only is not None:
            unseen = self._unseen(wishes.only - differing, now)
            plan = replace(plan, left=tuple(sorted((*plan.left, *unseen), key=lambda one: one.path)))
        return plan, differing

    def _unseen(self, paths: Collection[bytes], now: Taken) -> list[Left]:
        """Those of these paths that are there, and excluded by now: no comparison of snapshots tells of them."""
        not_ours = set(now.not_ours)
        return [
            Left(path, PROTECTED)
            for path in paths
            if (path in not_ours or not not_ours.isdisjoint(parents(path)))
            and os.path.lexists(self._directory.root + b"/" + path)
        ]

    async def _changed_since(
        self, now: bytes | None, changes: Sequence[FileChange], known: Sequence[str], load: filetree.Load
    ) -> set[bytes]:
        """Of what would be changed, what is there as no known snapshot has it: somebody else's change."""
        foreign = {change.path: change.before for change in changes}
        for reference in known:
            if not foreign:
                break
            try:
                tree = (await snapshots.load(self._services, reference)).tree
                if tree is None:
                    continue
                if tree == now:
                    return set()
                if len(foreign) <= FEW:
                    foreign = {
                        path: there for path, there in foreign.items() if await filetree.find(tree, path, load) != there
                    }
                else:
                    differing = {change.path async for change in _diff(tree, now, load)}
                    foreign = {path: there for path, there in foreign.items() if path in differing}
            except CorruptError:  # it was collected: it can't vouch for anything
                continue
        return set(foreign)

    async def _change(self, journal: Journal, plan: RestorePlan, now: Taken, progress: Progress | None) -> list[Left]:
        """Carries out the plan, and looks whether everything is there."""
        services = self._services
        is_content = await comparison(services, (entry for one in plan.actions for entry in (one.before, one.after)))
        root = descriptors.open_root(self._directory.root)
        applier = Applier(root, journal.token, is_content, now.seen)
        wrong: list[bytes] = []

        def look(left: Sequence[Left]) -> None:
            wrong.extend(applier.wrong(_without(plan.actions, left)))

        try:
            left = await carry_out(services.backend, applier, plan.actions, StoreSource(services), progress, check=look)
        finally:
            applier.close()
            os.close(root)
        if wrong:
            raise ChangedUnder(wrong[0], "it is not what was just written there")
        return left

    async def _move_head(self, journal: Journal, *, forward: bool) -> RollbackReport | None:
        """The state goes with the files, after them."""
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
        self, session_id: str, to: str, operation: restore_log.Named | None, *, dry_run: bool = False
    ) -> RollbackReport | None:
        """Moves the session's head there, or to a child of what is there: the state of a fork is the next one of its parent."""
        if operation is None or not _is_adoption(operation):
            return await self._directory.move_head(session_id, to, dry_run=dry_run)
        id_, kind, by, of = operation
        await self._directory.adopt(session_id, to, Origin(by, kind, of, id_), dry_run=dry_run)
        return None

    # -- a restore that was cut off ------------------------------------------------------------------------------------

    async def _put_back(self, why: BaseException, ours: Journal) -> None:
        """Rolls back what this process has begun; if that fails, too, or is cancelled in its turn, the journal stays."""
        begun = await self.interrupted()
        if begun is None or begun.token != ours.token:
            return
        try:
            await self._finish(forward=False, ours=True)
        except (OSError, HoldfastError, ChangedUnder) as error:
            raise RestoreInterruptedError(
                f"the restore failed ({why}), and so did putting everything back ({error}). Everything that was there is "
                "in the safety snapshot: see to the cause, then `holdfast restore --rollback` or `--resume`"
            ) from error

    async def _finish(self, *, forward: bool, force: bool = False, ours: bool = False) -> RestoreReport:
        journal, row = await self._journal()
        if journal is None or journal.state != RUNNING:
            raise CheckpointNotFoundError("no restore of this directory was cut off: there is nothing to finish")
        if not ours:
            self._refuse_running(journal)
        touched = await self._touched(journal)
        await self._sweep(journal, touched)
        now = await self._directory.take_safety("before finishing a restore that was cut off")
        assert now.checkpoint_id is not None
        goal = await snapshots.load(self._services, journal.target if forward else journal.safety)
        load = snapshots.loader(self._services)
        changes: list[FileChange] = []
        others: list[FileChange] = []
        async for change in _diff(now.snapshot.tree, goal.tree, load):
            (changes if change.path in touched else others).append(change)
        changes, homeless = _with_a_directory(changes, others)
        foreign = {one.path for one in changes if not _in_between(one.before, touched[one.path])}
        in_the_way = [change.path for change in others if change.before is not None]
        in_the_way += now.not_ours
        plan = make_plan(changes, changed_since=foreign, keep_user=not force, occupied=in_the_way)
        try:
            left = homeless + await self._change(journal, plan, now, None)
        except ChangedUnder as changed:
            raise WorkspaceChangedError(
                f"{_names([changed.path])} was changed meanwhile ({changed.found}). The restore is still unfinished: "
                "stop what writes there, and try again",
                (changed.path,),
            ) from None
        state = await self._move_head(journal, forward=forward)
        if foreign:
            await self._directory.keep_safety(now.checkpoint_id)
        else:
            await self._directory.drop_safety(now.checkpoint_id)
        if forward:
            await self._done(journal, row)
        else:
            await self._write(journal.previous, row)
        target = Target(
            snapshot=goal,
            checkpoint_id=journal.target_id if forward else journal.safety_id,
            session_id=journal.session_id,
        )
        return _report(target, plan, left=left, safety_id=journal.safety_id if forward else None, state=state)

    async def _sweep(self, journal: Journal, touched: Mapping[bytes, object]) -> None:
        root = descriptors.open_root(self._directory.root)
        try:
            for _ in range(LOOKS):
                if not sharing.is_at_work(root, journal.token):
                    break
                await self._services.backend.sleep(PATIENCE / LOOKS)
            else:
                raise ConflictError(
                    "processes of the restore that was cut off still write to this directory. Wait until they have ended "
                    "(`fuser DIRECTORY` lists them), then try again"
                )
            applier = Applier(root, journal.token, lambda _descriptor, _entry: False)
            await self._services.backend.apart(lambda: applier.sweep(touched))
        finally:
            os.close(root)

    async def _touched(self, journal: Journal) -> dict[bytes, tuple[Entry | None, Entry | None]]:
        """The paths that a restore changes, with what was there before and what is there after it."""
        before = await snapshots.load(self._services, journal.safety)
        after = await snapshots.load(self._services, journal.target)
        only = None if journal.only is None else frozenset(journal.only)
        untouched = frozenset(journal.untouched)
        return {
            change.path: (change.before, change.after)
            async for change in _diff(before.tree, after.tree, snapshots.loader(self._services))
            if (change.path not in untouched if only is None else change.path in only)
        }

    # -- the journal ---------------------------------------------------------------------------------------------------

    async def _journal(self) -> tuple[Journal | None, Row | None]:
        [row] = await self._services.backend.rows([self._key])
        return (None if row is None else restore_journal.unpack(self._key, row)), row

    async def _done(self, journal: Journal, over: Row | None) -> None:
        """It is done, and in the log: by one commit."""
        logged = restore_log.writes(self._services, self._directory.root, journal)
        await self._write(replace(journal, state=DONE, previous=None), over, logged)

    async def _write(self, journal: Journal | None, over: Row | None, logged: Sequence[RowWrite] = ()) -> Row | None:
        value = None if journal is None else journal.pack(self._key)
        expect = ABSENT if over is None else over.version
        try:
            await self._services.backend.commit(Commit(tree=b"", rows=[RowWrite(self._key, value, expect), *logged]))
        except CommitConflict:
            raise ConflictError(
                "another process has begun or finished a restore of this directory at the same moment. Look at what is "
                "there, then decide again"
            ) from None
        return None if value is None else Row(value, 1 if over is None else over.version + 1)

    async def _known(self, target: Target, wishes: Wishes, journal: Journal | None) -> list[str]:
        """Snapshots whose contents are not changes of the user's own."""
        if wishes.known is not None:
            return list(wishes.known)
        known = await self._directory.last_known(target.checkpoint_id)
        if journal is not None:
            known += journal.known
        return list(dict.fromkeys(known))

    async def _refuse_interrupted(self) -> None:
        journal = await self.interrupted()
        if journal is None:
            return
        self._refuse_running(journal)
        raise RestoreInterruptedError(
            "a restore of this directory was cut off and is half done. `holdfast restore --resume` finishes it, "
            "`holdfast restore --rollback` puts back what was there before"
        )

    def _refuse_running(self, journal: Journal) -> None:
        process = journal.process
        alive = process.place and process.place == self._services.this_process().place
        if alive and not self._services.has_ended(process) and process != self._services.this_process():
            raise ConflictError(f"a restore of this directory is running, in process {process.pid}")


def _endings() -> tuple[type[BaseException], ...]:
    """After what everything is put back: errors, and who stops it, which in an event loop is a cancellation."""
    with_loops = sys.modules.get("asyncio")  # who has no event loop need not import it
    stopping = [KeyboardInterrupt] if with_loops is None else [KeyboardInterrupt, with_loops.CancelledError]
    return (Exception, *stopping)


def _diff(before: bytes | None, after: bytes | None, load: filetree.Load) -> AsyncIterator[FileChange]:
    if before is None or after is None:
        raise UsageError("a snapshot of this directory was skipped, so there is nothing to compare with")
    return filetree.diff(before, after, load)


def _overlaid(nodes: Mapping[bytes, bytes], load: filetree.Load) -> filetree.Load:
    if not nodes:
        return load

    async def load_nodes(hashes: Sequence[bytes]) -> list[bytes]:
        stored = iter(await load([hash_ for hash_ in hashes if hash_ not in nodes]))
        return [nodes[hash_] if hash_ in nodes else next(stored) for hash_ in hashes]

    return load_nodes


def refuse(plan: RestorePlan | RestoreReport, wishes: Wishes) -> None:
    """Raises what stands against a restore."""
    if plan.conflicts and not wishes.force:
        count = len(plan.conflicts)
        raise WorkspaceChangedError(
            f"nothing was restored: {count} path{'s have' if count > 1 else ' has'} changed since {wishes.since} "
            f'and would be overwritten: {_names(plan.conflicts)}. keep="user" (--keep-user) leaves them as they '
            "are; force=True (--force) overwrites them, which `undo` takes back",
            plan.conflicts,
        )
    leading_out = [flag.path for flag in plan.flags if flag.kind == "escapes"]
    if leading_out and wishes.escape == "refuse":
        raise UsageError(f"nothing was restored: links that lead out of the directory: {_names(leading_out)}")


def _is_adoption(operation: restore_log.Named | None) -> bool:
    return operation is not None and operation[1] == ADOPT


def _nothing(_path: bytes) -> bool:
    return False


def _in_between(there: Entry | None, ends: tuple[Entry | None, Entry | None]) -> bool:
    """Whether a restore that was cut off may have left that: one of its ends, nothing, or a directory without its mode."""
    if there is None or there in ends:
        return True
    return there.kind == "dir" and any(end is not None and end.kind == "dir" for end in ends)


def _with_a_directory(
    changes: Sequence[FileChange], others: Sequence[FileChange]
) -> tuple[list[FileChange], list[Left]]:
    """Without what belongs into a directory that somebody else has moved away since, which is no business of ours."""
    gone = {one.path for one in others if one.after is not None and (one.before is None or one.before.kind != "dir")}
    homeless = {one.path for one in changes if not gone.isdisjoint(parents(one.path))} if gone else set()
    return (
        [one for one in changes if one.path not in homeless],
        [Left(path, "its directory is not there any more") for path in sorted(homeless)],
    )


def _briefly(touched: Collection[bytes], differing: set[bytes]) -> tuple[tuple[bytes, ...] | None, tuple[bytes, ...]]:
    """What is touched, or (None, what is not), whichever is shorter."""
    untouched = differing.difference(touched)
    return (None, tuple(sorted(untouched))) if len(untouched) <= len(touched) else (tuple(sorted(touched)), ())


def _without(actions: tuple[Action, ...], left: Sequence[Left]) -> tuple[Action, ...]:
    """The actions that were carried out."""
    stayed = {one.path for one in left}
    return tuple(action for action in actions if action.path not in stayed) if stayed else actions


def _names(paths: Sequence[bytes]) -> str:
    shown = ", ".join(path.decode("utf-8", "backslashreplace") for path in paths[:LISTED])
    return shown + (f" and {len(paths) - LISTED} more" if len(paths) > LISTED else "")


def _report(
    target: Target,
    plan: RestorePlan,
    *,
    left: Sequence[Left] = (),
    safety_id: str | None = None,
    dry_run: bool = False,
    state: RollbackReport | None = None,
) -> RestoreReport:
    stayed = {one.path for one in left}
    return RestoreReport(
        dry_run=dry_run,
        scope="files" if target.session_id is None else "both",
        target_id=target.checkpoint_id,
        safety_id=safety_id,
        actions=_without(plan.actions, left),
        conflicts=plan.conflicts if dry_run else (),
        overwritten=() if dry_run else tuple(path for path in plan.conflicts if path not in stayed),
        left=tuple(sorted((*plan.left, *left), key=lambda one: one.path)),
        flags=plan.flags,
        skipped=target.snapshot.skipped,
        excluded=target.snapshot.excluded_count,
        state=state,
    )
