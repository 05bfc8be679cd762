"""timeline, sessions and tree: listings without any state."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

from holdfast.backends.port import Backend, Record, Row, RowKey
from holdfast.errors import CheckpointNotFoundError, CorruptError, HoldfastError, KeyMissingError
from holdfast.format.rows import head as rows
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model import tree as trees
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.listing import DamagedCheckpoint, Session, Timeline, Tree
from holdfast.operations import inbox, lookup, tombstones
from holdfast.operations.context import StoreContext
from holdfast.operations.message_write import is_leaf
from holdfast.operations.record_pages import RecordsAhead
from holdfast.operations.session_cache import SessionTip

PAGE = 200
RECENT = 1000  # the newest records that are read to find the sessions saved to last
RECENT_PAGE = 100
_log = logging.getLogger("holdfast")


async def timeline(
    ctx: StoreContext, session_id: str, *, agent_id: str | None = None, limit: int | None = 50
) -> Timeline:
    """Return the checkpoints of a session, all branches, newest first by sequence.

    With `agent_id`, only those that the agent made or was handed. Every record is checked; no state
    is read.

    The listing is also checked to be complete: sequence numbers are given out one by one, from 1 to
    the head's, and an expired checkpoint leaves a tombstone. Packed tombstones are only read if a
    record is missing.
    """
    session = rows.session_key(session_id)
    entries: list[Checkpoint] = []
    expected: int | None = None
    page_size = PAGE if limit is None else min(PAGE, limit)

    async def read(backend: Backend) -> tuple[SessionTip, list[Record]]:
        tip = await lookup.revalidated_tip(ctx.read_from(backend), session)
        return tip, await backend.session_records(session, limit=page_size) if page_size else []

    tip, page = await ctx.backend.batch_reads(read)
    buried = _SessionTombstones(ctx, tip.tree, session)
    while page_size and expected != 0:
        if expected is not None:
            page = await ctx.backend.session_records(session, before=expected + 1, limit=page_size)
        for found in page:
            if expected is None:
                expected = max(tip.head.sequence, found.sequence)  # more may have been saved since the head was read
            if found.sequence != expected and not await buried.are_all(found.sequence + 1, expected):
                break
            expected = found.sequence - 1
            stored = lookup.unpack_listed(ctx, found, session)
            if is_leaf(stored) or await lookup.is_expired(ctx, stored):
                continue
            if agent_id is None or agent_id in (stored.header["agent"], stored.header.get("to")):
                entries.append(record.checkpoint(ctx.codec, stored))
                if len(entries) == limit:
                    return Timeline(entries)
        if expected is None:
            expected = tip.head.sequence
        if not page and await buried.are_all(1, expected):
            expected = 0
        if not page or page[-1].sequence != expected + 1:
            break
        page_size = PAGE
    if page_size and expected and (await lookup.load_tip(ctx, session)).tree == tip.tree:
        raise CorruptError(
            f"checkpoint number {expected} of session {session_id!r:.60} is missing: the store is damaged. Run "
            "`verify`; other checkpoints can still be restored by their ids"
        )
    return Timeline(entries)


class _SessionTombstones:
    """The graves of a session, read when a record is missing."""

    def __init__(self, ctx: StoreContext, tree: bytes | None, session: bytes) -> None:
        self._ctx = ctx
        self._tree = tree
        self._session = session
        self._numbers: set[int] = set()

    async def are_all(self, first: int, last: int) -> bool:
        """Return whether all these sequence numbers are in graves.

        If not, the graves are read again: the tombstones may have been packed since.
        """
        if not self._numbers.issuperset(range(first, last + 1)) and self._tree is not None:
            self._numbers = await tombstones.numbers_of(self._ctx, self._tree, self._session)
        return self._numbers.issuperset(range(first, last + 1))


async def session(ctx: StoreContext, session_id: str) -> Session | None:
    """Return a session and its head, None if there is none or all checkpoints have expired."""
    tip = await lookup.load_tip(ctx, rows.session_key(session_id))
    if tip.tree is None or tip.checkpoint is None:
        return None
    return _session(ctx, session_id, tip.tree, tip.head, tip.checkpoint)


async def session_ids(ctx: StoreContext, prefix: str, limit: int | None) -> list[str]:
    """Return the names of the sessions that begin so and have a live checkpoint, in order."""
    names: list[str] = []
    after: bytes | None = None
    is_sealed = ctx.backend.capabilities.sealed  # which scans names in an order of its own
    while limit is None or is_sealed or len(names) < limit:
        page = await ctx.backend.scan(rows.HEAD, prefix=rows.session_key(prefix), after=after, limit=PAGE)
        if not page:
            break
        for key, row in page:
            try:
                if rows.unpack_head(key, row).checkpoint is not None:
                    names.append(rows.session_name(key.key))
            except HoldfastError as error:
                _leave_out(key, error)
        after = page[-1][0].key
    if is_sealed:
        names.sort(key=rows.session_key)
    return names[:limit]


async def sessions(
    ctx: StoreContext, *, agent_id: str | None = None, limit: int | None = None, with_lanes: bool = False
) -> list[Session]:
    """Return the sessions, the one saved to last first.

    With `agent_id`, only those whose head the agent made or was handed. The lanes of topics are left
    out, unless they are asked for. The newest records lead to
    the sessions saved to last, so a short list reads few of them, however large the store is. Only
    a list that `RECENT` records do not fill reads every head: the remaining sessions follow,
    ordered by the time of their heads. An unreadable session is left out, unless all are: then its
    error is raised.
    """

    def is_wanted(item: Session) -> bool:
        if not with_lanes and item.session_id in lanes:
            return False
        return agent_id is None or agent_id in (item.head.agent_id, item.head.handoff_target)

    found: list[Session] = []
    lanes: set[str] = set()
    seen: set[bytes] = set()
    damage: list[HoldfastError] = []
    is_readable = False
    at_once = RECENT_PAGE if limit is None else min(limit, RECENT_PAGE)
    async for page in _recent_sessions(ctx, seen, at_once, damage, lanes):
        is_readable = is_readable or bool(page)
        found += filter(is_wanted, page)
        if limit is not None and len(found) >= limit:
            return found[:limit]
    others: list[Session] = []
    after: bytes | None = None
    while heads := await ctx.backend.scan(rows.HEAD, after=after, limit=PAGE):
        listed = await _sessions_of(ctx, [head for head in heads if head[0].key not in seen], damage, lanes)
        is_readable = is_readable or bool(listed)
        others += filter(is_wanted, listed)
        after = heads[-1][0].key
    if damage and not is_readable:
        raise damage[0]
    others.sort(key=lambda other: other.head.created_at, reverse=True)
    return (found + others)[:limit]


async def last_session(ctx: StoreContext, agent_id: str | None = None) -> str | None:
    """Return the name of the session saved to last, of all or of an agent's; None if there is none."""
    found = await sessions(ctx, agent_id=agent_id, limit=1)
    return found[0].session_id if found else None


async def _recent_sessions(
    ctx: StoreContext, seen: set[bytes], at_once: int, damage: list[HoldfastError], lanes: set[str]
) -> AsyncIterator[list[Session]]:
    """Yield the sessions of the newest `RECENT` records in batches, the one saved to last first.

    `seen` gets their keys.
    """
    before: int | None = None
    left = RECENT
    while left > 0 and at_once > 0:
        try:
            page = await ctx.backend.recent(before, min(left, RECENT_PAGE))
        except CorruptError as error:
            _log.warning("sessions are listed by the time of their heads: %s", error)
            return
        if not page:
            return
        left -= len(page)
        before = page[-1].position
        new = [key for key in dict.fromkeys(change.record.session for change in page) if key not in seen]
        seen.update(new)
        for start in range(0, len(new), at_once):
            yield await _sessions_of(ctx, await _head_rows(ctx, new[start : start + at_once]), damage, lanes)


async def _head_rows(ctx: StoreContext, sessions: Sequence[bytes]) -> list[tuple[RowKey, Row]]:
    """Return the head rows of these sessions, in their order; a session without one is left out."""
    trees = await ctx.backend.rows([RowKey(rows.SESSION, session) for session in sessions])
    keys: list[RowKey] = []
    for session, row in zip(sessions, trees, strict=True):
        key = RowKey(rows.SESSION, session)
        try:
            if row is not None:
                keys.append(rows.head_key(session, rows.content(key, row)))
        except HoldfastError as error:
            _leave_out(key, error)
    found = await ctx.backend.rows(keys)
    return [(key, row) for key, row in zip(keys, found, strict=True) if row is not None]


async def _sessions_of(
    ctx: StoreContext, page: Sequence[tuple[RowKey, Row]], damage: list[HoldfastError], lanes: set[str]
) -> list[Session]:
    """Return the sessions of these head rows.

    Their records are read at once; only expired ones need a second read. `damage` gets the errors
    of those that can't be read, `lanes` the names of those that have messages without a session.
    """
    heads: list[tuple[RowKey, rows.Head]] = []
    for key, row in page:
        try:
            heads.append((key, rows.unpack_head(key, row)))
        except HoldfastError as error:
            _leave_out(key, error)
            damage.append(error)
    records = await RecordsAhead.of(ctx, (head.checkpoint for _, head in heads))
    sessions = []
    for key, head in heads:
        if head.checkpoint is None:
            continue
        try:
            tip = await records.find(head.checkpoint, key.tree)
            if tip is None or await lookup.is_expired(ctx, tip):
                tip = await lookup.find_nearest_live(ctx, head.checkpoint, key.tree)
            if tip is not None:
                if "topic" in tip.header:
                    lanes.add(rows.session_name(key.key))
                sessions.append(_session(ctx, rows.session_name(key.key), key.tree, head, tip))
        except HoldfastError as error:
            _leave_out(key, error)
            damage.append(error)
    return sessions


def _session(ctx: StoreContext, session_id: str, tree_id: bytes, head: rows.Head, tip: StoredRecord) -> Session:
    return Session(
        session_id=session_id,
        tree_id=ids.to_text(tree_id),
        head=record.checkpoint(ctx.codec, tip),
        saves=head.sequence,
    )


def _leave_out(key: RowKey, error: HoldfastError) -> None:
    """Log a session that can't be read: it must not hide the others. A missing key is raised."""
    if isinstance(error, KeyMissingError):
        raise error
    _log.warning("session %s is left out of the list: %s", rows.format_key(key.key), error)


async def tree(ctx: StoreContext, session_id: str, damaged: list[DamagedCheckpoint] | None = None) -> Tree:
    """Return all checkpoints of the session's tree, including its forks, newest first.

    A damaged one raises an error, unless there is a list to put it into. The list is for people who
    look for the remains of a tree, and also names the missing checkpoints.
    """
    tree_id = await lookup.find_tree(ctx, rows.session_key(session_id))
    if tree_id is None:
        raise CheckpointNotFoundError(f"there is no session {session_id!r:.200}. `sessions` lists those that are there")
    entries: dict[str, Checkpoint] = {}
    expired: dict[str, str | None] = {}
    heads: dict[str, str] = {}
    for key, row in await ctx.backend.scan(rows.HEAD, tree=tree_id):
        name = rows.session_name(key.key)
        head: rows.Head | None = None
        try:
            head = rows.unpack_head(key, row)
            tip = await lookup.find_nearest_live(ctx, head.checkpoint, tree_id)
            if tip is not None:
                heads[name] = ids.to_text(tip.id)
        except CorruptError as error:
            if damaged is None:
                raise
            if head is None or head.checkpoint is None:
                damaged.append(DamagedCheckpoint(session_id=name, sequence=0, checkpoint_id=None, message=str(error)))
            else:
                heads[name] = ids.to_text(head.checkpoint)
        records = await ctx.backend.session_records(key.key)
        if damaged is not None and head is not None:
            damaged += await _find_missing(ctx, tree_id, key.key, head, records)
        for found in records:
            try:
                stored = lookup.unpack_listed(ctx, found, key.key)
            except CorruptError as error:
                if damaged is None:
                    raise
                id_ = ids.to_text(found.id)
                damaged.append(
                    DamagedCheckpoint(session_id=name, sequence=found.sequence, checkpoint_id=id_, message=str(error))
                )
                continue
            if is_leaf(stored):
                continue
            if await lookup.is_expired(ctx, stored):
                expired[ids.to_text(stored.id)] = ids.to_text(stored.parent) if stored.parent else None
            else:
                entries[ids.to_text(stored.id)] = record.checkpoint(ctx.codec, stored)
    for tombstone in await tombstones.load_tombstones(ctx, tree_id):
        if (id_ := ids.to_text(tombstone.id)) not in entries:  # packed since it was read: it is shown as it was
            expired[id_] = ids.to_text(tombstone.parent) if tombstone.parent else None
    return Tree(
        tree_id=ids.to_text(tree_id),
        entries=_newest_first(entries, expired),
        expired=expired,
        heads=heads,
        handoffs={handoff.handoff_id: handoff for handoff in await inbox.list_handoffs(ctx, tree_id)},
    )


async def _find_missing(
    ctx: StoreContext, tree_id: bytes, session: bytes, head: rows.Head, records: Sequence[Record]
) -> list[DamagedCheckpoint]:
    """Return the numbers up to the head's that neither a checkpoint nor a grave of the session has."""
    missing = {*range(1, head.sequence + 1)}.difference(found.sequence for found in records)
    if missing:
        missing -= await tombstones.numbers_of(ctx, tree_id, session)
    name = rows.session_name(session)
    return [
        DamagedCheckpoint(
            session_id=name, sequence=number, checkpoint_id=None, message="it is missing: the store is damaged"
        )
        for number in sorted(missing)
    ]


def _newest_first(entries: dict[str, Checkpoint], expired: dict[str, str | None]) -> tuple[Checkpoint, ...]:
    """Return children before parents, whatever the clocks said.

    Time decides between branches, but a checkpoint counts as made after all its ancestors, expired
    ones included.
    """
    parents = {id_: entry.parent_id for id_, entry in entries.items()} | expired
    place: dict[str, tuple[float, int]] = {}  # (time, depth)
    for id_ in parents:
        path = []
        for ancestor in trees.ancestors(parents, id_):
            if ancestor in place:
                break
            path.append(ancestor)
        for ancestor in reversed(path):
            time, depth = place.get(parents[ancestor] or "", (0.0, -1))
            if ancestor in entries:
                time = max(time, entries[ancestor].created_at.timestamp())
            place[ancestor] = (time, depth + 1)
    return tuple(sorted(entries.values(), key=lambda entry: place[entry.checkpoint_id], reverse=True))
