"""Imported snapshots: fork and restore leave out the parts that could do harm."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from holdfast.backends.port import RowWrite
from holdfast.format.rows import imported_snapshot
from holdfast.format.state.record import StoredRecord
from holdfast.operations import snapshot_read
from holdfast.operations.context import StoreContext

IsForeign = Callable[[str], Awaitable[bool]]  # takes a snapshot's reference


async def is_imported(ctx: StoreContext, reference: str) -> bool:
    """Return whether the snapshot of this reference was imported. A damaged mark counts, too."""
    return await ctx.backend.rows([imported_snapshot.key(reference)]) != [None]


async def marks(records: Iterable[StoredRecord], is_foreign: IsForeign | None) -> list[RowWrite]:
    """Return the marks of the snapshots of records that will be imported.

    With `is_foreign`, only of those that it names.
    """
    references = dict.fromkeys(
        reference for stored in records if (reference := snapshot_read.reference_of(stored)) is not None
    )
    return [
        imported_snapshot.mark(reference)
        for reference in references
        if is_foreign is None or await is_foreign(reference)
    ]
