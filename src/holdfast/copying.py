"""Copying a store into another one, of any kind: tree by tree, by way of a temporary file each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.model.bundle import CopyReport
from holdfast.operations import timeline as listing

if TYPE_CHECKING:
    from holdfast.moving import Moving


async def copy(
    source: Moving, target: Moving, *, skip_conflicts: bool, progress: Callable[[int, int], None] | None
) -> CopyReport:
    """A tree is checked on its way out and again before it becomes visible on the other side, whole or not at all. What
    is there already costs a look: so a copy that was interrupted goes on where it stopped when it is made again, and
    one that is made again later takes over what is new."""
    sessions = {session.tree_id: session.session_id for session in await listing.sessions(source._services)}
    report = CopyReport()
    for done, (_, session_id) in enumerate(sorted(sessions.items())):
        if progress is not None:
            progress(done, len(sessions))
        with tempfile.TemporaryFile(prefix="holdfast-") as carried:
            exported = await source.export(carried, session_id, whole_tree=True)
            carried.seek(0)
            imported = await target.import_(carried, on_conflict="skip" if skip_conflicts else "error")
        report = replace(
            report,
            trees=report.trees + exported.trees,
            sessions=report.sessions + exported.sessions,
            checkpoints=report.checkpoints + exported.checkpoints + exported.tombstones,
            copied=report.copied + imported.imported,
            already_there=report.already_there + imported.already_there,
            bytes_read=report.bytes_read + exported.size,
            skipped=report.skipped + imported.skipped,
        )
    if progress is not None:
        progress(len(sessions), len(sessions))
    return report
