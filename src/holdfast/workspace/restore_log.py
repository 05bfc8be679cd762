"""Restores of files in the log of operations: what is written there, and what an undo goes by."""

from __future__ import annotations

from dataclasses import replace

from holdfast.backends.port import STORE, RowWrite
from holdfast.model import ids
from holdfast.model.oplog import REDO, STEPS, UNDO
from holdfast.objects import oplog, restore_journal, rows
from holdfast.objects.oplog import Change, Entry, Origin
from holdfast.objects.restore_journal import Journal
from holdfast.operations import oplog as log
from holdfast.operations.services import Services

Named = tuple[bytes, str, str, bytes | None]


def operation(services: Services, origin: Origin | None, undone: Journal | None) -> Named | None:
    """What a restore will be in the log: decided before it begins, so that whoever finishes it writes down the same."""
    if origin is None:
        return None
    kind, of = origin.kind or "restore", origin.of
    if undone is not None and origin.kind is None:
        kind, of = _taking_back(undone.operation)
    return origin.id or services.new_id(None), kind, origin.by, of


def _taking_back(last: Named | None) -> tuple[str, bytes | None]:
    if last is None:  # a restore from before there was a log
        return UNDO, None
    id_, kind, _, of = last
    if kind not in STEPS:
        return UNDO, id_
    return (REDO if kind == UNDO else UNDO), of


def writes(services: Services, root: bytes, journal: Journal) -> list[RowWrite]:
    """The row that writes a restore down, for the commit that ends it."""
    if journal.operation is None:
        return []
    id_, kind, by, of = journal.operation
    changes = [Change(oplog.FILES, root, None, journal.logged())]
    return log.writes(services, Origin(by, kind, of, id_), STORE, kind, changes, journal.session_id)


async def as_logged(services: Services, journal: Journal | None, entry: Entry | None) -> Journal:
    """What is to be taken back: the restore of an entry, or the last one of a directory, with the session that has moved with
    the files."""
    if entry is None:
        assert journal is not None
        found = None if journal.operation is None else await log.find(services, journal.operation[0])
    else:
        found = entry
        [files] = [change for change in entry.changes if change.kind == oplog.FILES]
        journal = restore_journal.from_log(files.after)
    for change in found.changes if found is not None else ():
        if change.kind == oplog.HEAD and change.before is not None:  # of an adoption
            return replace(
                journal,
                session_id=rows.session_name(change.name),
                from_id=ids.to_text(change.before),
                target_id=ids.to_text(change.after),
            )
    return journal
