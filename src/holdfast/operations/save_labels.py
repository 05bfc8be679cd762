"""The tag and the pin of a save, written by the same commit as its checkpoint or not at all.

A tag on another checkpoint that may not be moved refuses the save before anything is written. The
commit compares the tag's previous target: after a conflict it is read again.
"""

from __future__ import annotations

from holdfast.backends.port import RowWrite
from holdfast.format.rows import hold as holds
from holdfast.format.rows import operation_log
from holdfast.format.rows.hold import Hold, TagRow
from holdfast.format.rows.operation_log import LoggedChange
from holdfast.format.state.record import StoredRecord
from holdfast.operations import operation_log as log
from holdfast.operations import pin, tag
from holdfast.operations.context import StoreContext
from holdfast.operations.validate import LabelRequest

MOVES = "`move_tag=True` moves it (`holdfast save --move-tag`)"


class SaveHolds:
    """The rows that hold a new checkpoint, given the present state of its tag."""

    def __init__(self, wanted: LabelRequest, standing: tag.TagState | None) -> None:
        self._wanted = wanted
        self._standing = standing

    @classmethod
    async def load(cls, ctx: StoreContext, wanted: LabelRequest) -> SaveHolds:
        """Read the tag; raise `ConflictError` if it is on another checkpoint, unless it may be moved."""
        if wanted.tag is None:
            return cls(wanted, None)
        standing = await tag.load_tag(ctx, wanted.tag)
        if standing.current is not None and not wanted.move_tag:
            raise tag.stands_elsewhere(wanted.tag, standing.current, MOVES, "Nothing was saved")
        return cls(wanted, standing)

    def writes(self, ctx: StoreContext, stored: StoredRecord) -> list[RowWrite]:
        """Return the rows for the commit that makes the checkpoint: nothing can hold it yet.

        Tag and pin are operations of their own, so that each can be undone.
        """
        wanted, now = self._wanted, ctx.now_us()
        hold = Hold(pinned_at_us=now if wanted.pin else None)
        written: list[RowWrite] = []

        def note(kind: str, change: LoggedChange) -> None:
            written.extend(log.writes(ctx, wanted.origin, stored.tree, kind, [change], stored.session))

        if wanted.pin:
            note("pin", LoggedChange(operation_log.PIN, stored.id, None, pin.pinned_of(hold)))
        if self._standing is not None:
            hold = hold.with_tag(self._standing.key.key)
            made = TagRow(stored.id, stored.tree, now)
            written.append(self._standing.write(made))
            note("tag", self._standing.change(made))
        key = holds.hold_key(stored.id, stored.tree)
        return [RowWrite(key, hold.pack(key)), *written]

    async def settle(self, ctx: StoreContext) -> None:
        """Release the checkpoint that the tag has left."""
        current = None if self._standing is None else self._standing.current
        if current is not None:
            await tag.settle(ctx, holds.hold_key(current.checkpoint, current.tree))


async def hold_again(ctx: StoreContext, wanted: LabelRequest, stored: StoredRecord) -> None:
    """Hold the checkpoint of a repeated save, if it is not held."""
    if wanted.tag is not None:
        await tag.tag(ctx, wanted.tag, stored.id, force=wanted.move_tag, origin=wanted.origin)
    if wanted.pin:
        await pin.pin(ctx, stored.id, origin=wanted.origin)
