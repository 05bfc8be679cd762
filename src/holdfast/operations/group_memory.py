"""What a consumer remembers of its group between two claims, so that a busy one reads little.

Nothing here decides: a remembered row is replaced by compare-and-set like one that was read, and
remembered messages are those that a read would give, since positions are the order of commits. All
of it is used for a second at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.backends.port import Change
from holdfast.model.group_state import GroupState
from holdfast.operations import read_topic
from holdfast.operations.context import StoreContext

FRESH_US = 1_000_000
QUIET_US = 30 * 1_000_000  # an idle consumer reads its group's row once in so long
AHEAD = 16  # messages of the topic that are read at once
SHARED_FOR = 16  # updates that read the row, after another consumer has replaced a remembered one

Row = tuple[GroupState, int]  # with its version


@dataclass(slots=True)
class GroupMemory:
    """The row of a group and the next messages of its topic, as one consumer saw them last."""

    _row: Row | None = None
    _row_us: int = 0
    _shared: int = 0
    _changes: list[Change] = field(default_factory=list)  # all between two positions, without a gap
    _changes_after: int = 0
    _changes_us: int = 0
    _quiet_cursor: int | None = None
    _quiet_until_us: int = 0

    # -- the row -----------------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> int | None:
        """The cursor in the remembered row."""
        return None if self._row is None or self._shared else self._row[0].cursor

    def take_row(self, now_us: int) -> Row | None:
        """Return the row, if it is likely to be that of the store; it is forgotten until it is kept again."""
        row, self._row = self._row, None
        if self._shared:
            self._shared -= 1
            return None
        return row if now_us < self._row_us + FRESH_US else None

    def keep_row(self, state: GroupState, version: int, now_us: int) -> None:
        """Remember the row that this consumer has just written."""
        self._row, self._row_us = (state, version), now_us

    def note_overtaken(self) -> None:
        """Note that another consumer had replaced the row."""
        self._shared = SHARED_FOR

    # -- the topic ---------------------------------------------------------------------------------------------------

    async def changes_of(self, ctx: StoreContext, topic: str, after: int, limit: int) -> tuple[list[Change], int]:
        """Return messages of the topic after a position, and the position up to which there are no others."""
        now = ctx.now_us()
        if now < self._changes_us + FRESH_US and after >= self._changes_after:
            found = [change for change in self._changes if change.position > after][:limit]
            if len(found) == limit:
                return found, found[-1].position
        page, end = await read_topic.changes_of(ctx, topic, after, max(limit, AHEAD))
        self._changes, self._changes_after, self._changes_us = page, after, now
        return (page, end) if len(page) <= limit else (page[:limit], page[limit - 1].position)

    def next_change(self, after: int, now_us: int) -> Change | None:
        """Return the message after a position, if it is remembered."""
        if now_us >= self._changes_us + FRESH_US or after < self._changes_after:
            return None
        return next((change for change in self._changes if change.position > after), None)

    # -- without entries -----------------------------------------------------------------------------------------------

    def note_claim(self, state: GroupState, now_us: int) -> None:
        """Note a group without entries: for a while, polls of this consumer read the topic only.

        Any other consumer that claims a message leaves it behind the cursor. Only a message that a
        person has redelivered is not, and waits for the next look at the row, or for a commit.
        """
        self._quiet_cursor, self._quiet_until_us = None if state.entries else state.cursor, now_us + QUIET_US

    async def is_quiet(self, ctx: StoreContext, topic: str) -> bool:
        """Return whether a claim would find nothing."""
        if self._quiet_cursor is None or ctx.now_us() >= self._quiet_until_us:
            return False
        page, self._quiet_cursor = await read_topic.changes_of(ctx, topic, self._quiet_cursor, 1)
        if page:
            self._quiet_cursor = None
        return not page
