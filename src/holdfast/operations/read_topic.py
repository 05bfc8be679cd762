"""read_topic: the messages of a topic in their order, its groups, and how many messages wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.backends.port import Change, RowWrite
from holdfast.errors import CorruptError
from holdfast.format.rows import head
from holdfast.format.rows import topic as rows
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.group_state import GroupState
from holdfast.model.message import DAY
from holdfast.operations.context import StoreContext
from holdfast.operations.message_write import check_header, feed_of

PAGE = 500
LIVE_US = round(30 * DAY * 1e6)  # a group that was not seen for so long keeps no messages


@dataclass(slots=True)
class Backlog:
    """The positions of a topic's messages as far as this client has read them, for its publishers."""

    topic: str
    positions: list[int] = field(default_factory=list)
    checked_us: int = 0
    is_full: bool = False
    lane: int = 0  # number of the session that messages without one are in
    hints: list[RowWrite] = field(default_factory=list)  # at parked runs that wait for its messages


async def changes_of(ctx: StoreContext, topic: str, after: int, limit: int) -> tuple[list[Change], int]:
    """Return messages of a topic after a position, and the position up to which there are no others."""
    backend, feed = ctx.backend, head.session_key(topic)
    if backend.capabilities.feeds:
        found = await backend.changes(after, limit, feed)
        return found, found[-1].position if found else after
    kept: list[Change] = []
    while len(kept) < limit and (page := await backend.changes(after, PAGE)):
        for change in page:
            if len(kept) < limit:
                after = change.position
                kept += [change] if _is_of(ctx, change, feed) else []
    return kept, after


def _is_of(ctx: StoreContext, change: Change, feed: bytes) -> bool:
    try:
        return feed_of(record.unpack(ctx.codec, change.record.data).header) == feed
    except Exception:
        return False


async def groups_of(ctx: StoreContext, topic: str) -> list[tuple[str, GroupState]]:
    """Return the groups of a topic."""
    prefix = rows.topic_prefix(topic)
    page = await ctx.backend.scan(rows.GROUP, prefix=prefix)
    return [(rows.names_of(key)[1], rows.unpack_group(key, row)) for key, row in page]


def is_live(ctx: StoreContext, state: GroupState) -> bool:
    """Return whether a group was seen so lately that messages are kept for it."""
    return state.seen_us > ctx.now_us() - LIVE_US


async def slowest_group(ctx: StoreContext, backlog: Backlog) -> tuple[str | None, int]:
    """Return the live group that has the most messages left, and how many."""
    live = [(name, state) for name, state in await groups_of(ctx, backlog.topic) if is_live(ctx, state)]
    if not live:
        return None, 0
    lowest = min(state.cursor for _, state in live)
    known = backlog.positions = [position for position in backlog.positions if position > lowest]
    after = known[-1] if known else lowest
    while True:
        page, after = await changes_of(ctx, backlog.topic, after, PAGE)
        known += [change.position for change in page]
        if len(page) < PAGE:
            break
    left = {name: len(state.entries) + sum(number > state.cursor for number in known) for name, state in live}
    slowest = max(left, key=lambda name: left[name])
    return slowest, left[slowest]


def unpack_message(ctx: StoreContext, change: Change, topic: str) -> StoredRecord:
    """Return the record of a message of a topic; raise an error if it is another one, damaged or too new."""
    stored = check_header(record.unpack(ctx.codec, change.record.data, expected_id=change.record.id))
    if not stored.is_tombstone and stored.header["topic"] != topic:
        raise CorruptError(
            f"{ids.to_text(stored.id)} is a message of topic {stored.header['topic']!r:.60}, and was found in "
            f"{topic!r:.60}: the store was changed by another program"
        )
    return stored


@dataclass(slots=True)
class SettledMessages:
    """Which groups have settled which messages of a topic."""

    topic: str
    groups: list[tuple[str, GroupState]]
    positions: dict[bytes, int]

    @classmethod
    async def load(cls, ctx: StoreContext, topic: str) -> SettledMessages:
        groups = await groups_of(ctx, topic)  # before the messages: what is new since is not settled
        positions: dict[bytes, int] = {}
        after = 0
        while groups:
            page, after = await changes_of(ctx, topic, after, PAGE)
            positions |= {change.record.id: change.position for change in page}
            if len(page) < PAGE:
                break
        return cls(topic, groups, positions)

    def groups_of(self, id_: bytes) -> list[str]:
        """Return the groups that have settled a message."""
        position = self.positions.get(id_)
        return [] if position is None else [name for name, state in self.groups if state.is_settled(position, id_)]

    def keys_of(self, id_: bytes) -> list[bytes]:
        """Return the keys of the rows that say so beside an exported message."""
        return [rows.consumed_key(self.topic, name, id_) for name in self.groups_of(id_)]
