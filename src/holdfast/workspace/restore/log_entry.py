"""Restores in the operation log: the entries, and the journals that an undo follows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from holdfast.backends.port import STORE, RowWrite
from holdfast.format.rows import head, operation_log, restore_journal
from holdfast.format.rows.operation_log import LoggedChange, OperationEntry, Origin
from holdfast.format.rows.restore_journal import RestoreJournal
from holdfast.model import ids
from holdfast.model.operation import REDO, STEPS, UNDO
from holdfast.operations import operation_log as log
from holdfast.operations.context import StoreContext

Named = tuple[bytes, str, str, bytes | None]


async def last_journal(ctx: StoreContext, root: Path) -> RestoreJournal | None:
    """Return the journal of the last restore of a directory: one that is done, or was cut off."""
    inode = (await ctx.backend.run_in_thread(root.stat)).st_ino
    key = restore_journal.key(os.fsencode(root), inode)
    [row] = await ctx.backend.rows([key])
    return None if row is None else restore_journal.unpack(key, row)


def operation(ctx: StoreContext, origin: Origin | None, undone: RestoreJournal | None) -> Named | None:
    """Return a restore's log entry.

    It is decided before the restore begins: another process that finishes it logs the same.
    """
    if origin is None:
        return None
    kind, of = origin.kind or "restore", origin.of
    if undone is not None and origin.kind is None:
        kind, of = kind_of_undo(undone.operation)
    return origin.id or ctx.new_id(None), kind, origin.by, of


def kind_of_undo(last: Named | None) -> tuple[str, bytes | None]:
    """Return the next step after a restore, and its operation: an undo, or a redo of an undo."""
    if last is None:  # a restore from before there was a log
        return UNDO, None
    id_, kind, _, of = last
    if kind not in STEPS:
        return UNDO, id_
    return (REDO if kind == UNDO else UNDO), of


async def is_logged(ctx: StoreContext, journal: RestoreJournal) -> bool:
    """Return whether the log has a restore. It lacks one older than the log, or removed by gc."""
    if journal.operation is None:
        return False
    id_, kind, _, of = journal.operation
    meant = of if kind in STEPS else id_
    return meant is not None and await log.find(ctx, meant) is not None


def writes(ctx: StoreContext, root: bytes, journal: RestoreJournal) -> list[RowWrite]:
    """Return the row that writes a restore down, for the commit that ends it."""
    if journal.operation is None:
        return []
    id_, kind, by, of = journal.operation
    changes = [LoggedChange(operation_log.FILES, root, None, journal.get_logged_part())]
    return log.writes(ctx, Origin(by, kind, of, id_), STORE, kind, changes, journal.session_id)


async def journal_for(
    ctx: StoreContext, journal: RestoreJournal | None, entry: OperationEntry | None
) -> RestoreJournal:
    """Return the journal to undo: an entry's restore, or the last one of a directory.

    It includes the session that has moved with the files.
    """
    if entry is None:
        assert journal is not None
        found = None if journal.operation is None else await log.find(ctx, journal.operation[0])
    else:
        found = entry
        [files] = [change for change in entry.changes if change.kind == operation_log.FILES]
        journal = restore_journal.from_log(files.after)
    for change in found.changes if found is not None else ():
        if change.kind == operation_log.HEAD and change.before is not None:  # of an adoption
            return replace(
                journal,
                session_id=head.session_name(change.name),
                from_id=ids.to_text(change.before),
                target_id=ids.to_text(change.after),
            )
    return journal
