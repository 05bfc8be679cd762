"""Undo and redo: one linear history of operations for client, workspaces and command line.

An undo reverts the newest operation that is not undone, a redo the newest undo that is not redone;
a new operation clears the redo history. Operations on the files of other directories are skipped.
Files are restored by the journal that the log holds; everything else by `operations/undo.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.coordination import process
from holdfast.errors import CheckpointNotFoundError, ConflictError, UsageError
from holdfast.format.rows import operation_log as entries
from holdfast.format.rows.operation_log import OperationEntry, Origin
from holdfast.model import ids
from holdfast.model.file_restore_report import RestoreReport, UndoReport
from holdfast.model.operation import REDO, UNDO, Operation, OperationChange
from holdfast.operations import operation_log, validate
from holdfast.operations import undo as revert
from holdfast.operations.context import StoreContext
from holdfast.operations.operation_log import OperationStep
from holdfast.workspace.limits import refuse_if_gone
from holdfast.workspace.origin import is_expected, store_on_disk
from holdfast.workspace.restore.directory import DirectoryState
from holdfast.workspace.restore.engine import RestoreEngine
from holdfast.workspace.restore.request import RestoreOptions

if TYPE_CHECKING:
    from holdfast.workspace.core import WorkspaceCore


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoTerms:
    """The arguments of an undo or a redo; `directory`, if given, is the one whose files it may change."""

    op: str | None = None
    directory: WorkspaceCore | None = None
    keep: str | None = None
    force: bool = False
    dry_run: bool = False
    by: str | None = None


async def undo(ctx: StoreContext, terms: UndoTerms, open_directory: Callable[[str], WorkspaceCore]) -> UndoReport:
    """Take back the newest operation that is not undone, or the one that is named."""
    return await _take(ctx, UNDO, terms, open_directory)


async def redo(ctx: StoreContext, terms: UndoTerms, open_directory: Callable[[str], WorkspaceCore]) -> UndoReport:
    """Redo the last undone operation, or the named one."""
    return await _take(ctx, REDO, terms, open_directory)


async def _take(
    ctx: StoreContext, kind: str, terms: UndoTerms, open_directory: Callable[[str], WorkspaceCore]
) -> UndoReport:
    if terms.keep is not None:
        validate.one_of("keep", terms.keep, ("user",))
    if terms.directory is not None:
        refuse_if_gone(terms.directory.path)
    by = process.default_holder() if terms.by is None else validate.name("by", terms.by)
    try:
        step = await _step(ctx, kind, terms)
    except CheckpointNotFoundError:
        report = await _take_unlogged(kind, terms, by) if terms.op is None else None
        if report is None:
            raise
        return report
    origin = operation_log.origin_of(ctx, step, by)
    shown = operation_log.make_operation(step)
    report = UndoReport(
        kind=str(origin.kind), operation=shown, dry_run=terms.dry_run, changes=_direction(shown, str(origin.kind))
    )
    path = _path(step.last)
    if path is not None:
        files = await _take_files(ctx, step, path, terms, origin, open_directory)
        report = replace(report, files=files, state=files.state)
    elif not terms.dry_run:
        left, state = await revert.revert(ctx, step.last, origin)
        report = replace(report, left=tuple(left), state=state)
    return report if terms.dry_run or origin.id is None else replace(report, operation_id=ids.to_text(origin.id))


async def _step(ctx: StoreContext, kind: str, terms: UndoTerms) -> OperationStep:
    if terms.op is not None:
        return await operation_log.find_step(ctx, validate.name("op", terms.op), kind)
    find = operation_log.next_undo if kind == UNDO else operation_log.next_redo
    return await find(ctx, lambda entry: _is_about(entry, terms.directory))


async def _take_files(
    ctx: StoreContext,
    step: OperationStep,
    path: bytes,
    terms: UndoTerms,
    origin: Origin,
    open_directory: Callable[[str], WorkspaceCore],
) -> RestoreReport:
    named, given, name = ids.to_text(step.operation.id), terms.directory, os.fsdecode(path)
    if given is not None and os.fsencode(given.path) != path:
        raise UsageError(
            f"operation {named} was about the files of {name!r:.120}, not of {str(given.path)!r:.120}. "
            "`client.undo` and `holdfast undo` find the directory themselves"
        )
    if given is None and not is_expected(Path(name), store_on_disk(ctx)):
        raise UsageError(
            f"operation {named} was about the files of {name!r:.300}, outside the directory of this store: nothing was "
            "changed. If you want that directory's files changed, name it: workspace=..."
        )
    if given is None and not await ctx.backend.run_in_thread(Path(name).is_dir):
        raise CheckpointNotFoundError(
            f"operation {named} was about the files of {name!r:.120}, which is not there: it was made on another "
            "machine, or the directory was moved or removed"
        )
    later = await operation_log.files_since(ctx, step, path)
    if later is not None:
        raise ConflictError(
            f"operation {ids.to_text(later.id)} ({later.kind}) has changed the files of {name!r:.120} later: undo that "
            f"one first (`holdfast undo {ids.to_text(later.id)[-8:]}`)"
        )
    return await _restore(given if given is not None else open_directory(name), terms, origin, step.last)


async def _restore(
    opened: WorkspaceCore, terms: UndoTerms, origin: Origin, entry: OperationEntry | None
) -> RestoreReport:
    restoring = RestoreEngine(DirectoryState(opened), origin)
    options = RestoreOptions(keep="user" if terms.keep else None, force=terms.force)
    return await (restoring.plan_undo if terms.dry_run else restoring.undo)(options, entry)


async def _take_unlogged(kind: str, terms: UndoTerms, by: str) -> UndoReport | None:
    """Undo the last restore of a directory that has no log entry; return None if there is none.

    The restore is older than the log, or gc has removed its entry.
    """
    if terms.directory is None or await RestoreEngine(DirectoryState(terms.directory)).find_unlogged() != kind:
        return None
    files = await _restore(terms.directory, terms, Origin(by), None)
    return UndoReport(kind=kind, operation=None, dry_run=terms.dry_run, files=files, state=files.state)


def _direction(found: Operation, kind: str) -> tuple[OperationChange, ...]:
    """Return the changes in the direction of the step: an undo starts at the operation's result."""
    if kind == REDO:
        return found.changes
    return tuple(replace(change, before=change.after, after=change.before) for change in found.changes)


def _path(entry: OperationEntry) -> bytes | None:
    """Return the directory whose files an entry has changed."""
    return next((change.name for change in entry.changes if change.kind == entries.FILES), None)


def _is_about(entry: OperationEntry, given: WorkspaceCore | None) -> bool:
    """Return whether an operation may be undone without being named: not one on another directory."""
    path = _path(entry)
    return path is None or given is None or os.fsencode(given.path) == path
