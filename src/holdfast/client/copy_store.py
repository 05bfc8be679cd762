"""Copies of a store into another one of any kind, tree by tree, each through a temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, cast

from holdfast.model.transfer_report import CopyReport
from holdfast.operations import timeline as listing
from holdfast.operations.imported_snapshot import is_imported

if TYPE_CHECKING:
    from holdfast.client.transfer import ClientTransfer


async def copy(
    source: ClientTransfer, target: ClientTransfer, *, skip_conflicts: bool, progress: Callable[[int, int], None] | None
) -> CopyReport:
    """Copies every tree that is not there already.

    A tree is verified on its way out and again before it becomes visible on the other side, whole
    or not at all. So an interrupted copy resumes when it is made again, and a later one copies only
    new trees.
    """
    sessions = {session.tree_id: session.session_id for session in await listing.sessions(source._ctx, with_lanes=True)}
    report = CopyReport()
    is_sealed = source._ctx.backend.capabilities.sealed or target._ctx.backend.capabilities.sealed

    async def is_foreign(reference: str) -> bool:
        """Return whether a snapshot was imported there: it is marked here as well; one taken there is not."""
        return await is_imported(source._ctx, reference)

    for done, (_, session_id) in enumerate(sorted(sessions.items())):
        if progress is not None:
            progress(done, len(sessions))
        with _temporary_file(is_sealed=is_sealed) as carried:
            exported = await source.export(carried, session_id, whole_tree=True, plain=True)
            carried.seek(0)
            imported = await target._take_over(carried, skip_conflicts=skip_conflicts, is_foreign=is_foreign)
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


def _temporary_file(*, is_sealed: bool) -> BinaryIO:
    """Return a temporary file; between sealed stores one whose content is encrypted."""
    if is_sealed:
        from holdfast.sealing.temporary_file import SealedTemporaryFile

        return cast("BinaryIO", SealedTemporaryFile())
    return tempfile.TemporaryFile(prefix="holdfast-")
