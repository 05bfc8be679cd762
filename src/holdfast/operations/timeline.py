"""timeline, sessions and tree: what is there, without any state."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.backends.port import Backend, Record, Row, RowKey
from holdfast.errors import CheckpointNotFoundError, CorruptError, HoldfastError
from holdfast.model import ids
from holdfast.model import tree as trees
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.listing import Damaged, Session, Timeline, Tree
from holdfast.objects import record, rows
from holdfast.objects.record import Stored
from holdfast.operations import graves, inbox, reading
from holdfast.operations.memory import Line
from holdfast.operations.services import Services

PAGE = 200
_log = logging.getLogger("holdfast")


async def timeline(
    services: Services, session_id: str, *, agent_id: str | None = None, limit: int | None = 50
) -> Timeline:
    """The checkpoints of a session, all branches, newest first by sequence; with `agent_id` those that the agent made
    or was handed. Every record is checked; no state is read.

    That none is missing is checked, too: sequence numbers are given out one by one, from 1 to the head's, and an expired
    checkpoint leaves a tombstone or a grave. The graves are only looked at if a record is not there.
    """
    session = rows.session_key(session_id)
    entries: list[Checkpoint] = []
    expected: int | None = None
    page_size = PAGE if limit is None else min(PAGE, limit)

    async def read(backend: Backend) -> tuple[Line, list[Record]]:
        line = await reading.confirmed_line(services.over(backend), session)
        return line, await backend.session_records(session, limit=page_size) if page_size else []

    line, page = await services.backend.together(read)
    buried = _Buried(services, line.tree, session)
    while page_size and expected != 0:
        if expected is not None:
            page = await services.backend.session_records(session, before=expected + 1, limit=page_size)
        for found in page:
            if expected is None:
                expected = max(line.head.sequence, found.sequence)  # more may have been saved since the head was read
            if found.sequence != expected and not await buried.are_all(found.sequence + 1, expected):
                break
            expected = found.sequence - 1
            stored = reading.listed_record(services, found, session)
            if await reading.is_over(services, stored):
                continue
            if agent_id is None or agent_id in (stored.header["agent"], stored.header.get("to")):
                entries.append(record.checkpoint(services.codec, stored))
                if len(entries) == limit:
                    return Timeline(entries)
        if expected is None:
            expected = line.head.sequence
        if not page and await buried.are_all(1, expected):
            expected = 0
        if not page or page[-1].sequence != expected + 1:
            break
        page_size = PAGE
    if page_size and expected and (await reading.standing(services, session)).tree == line.tree:
        raise CorruptError(
            f"checkpoint number {expected} of session {session_id!r:.60} is missing: the store is damaged. Run `verify`; "
            "other checkpoints can still be restored by their ids"
        )
    return Timeline(entries)


class _Buried:
    """The graves of a session, read when a record is missed."""

    def __init__(self, services: Services, tree: bytes | None, session: bytes) -> None:
        self._services = services
        self._tree = tree
        self._session = session
        self._numbers: set[int] = set()

    async def are_all(self, first: int, last: int) -> bool:
        """Whether all these sequence numbers are in graves. If not by what was read before, they are read again:
        they may have been buried since."""
        if not self._numbers.issuperset(range(first, last + 1)) and self._tree is not None:
            self._numbers = await graves.numbers_of(self._services, self._tree, self._session)
        return self._numbers.issuperset(range(first, last + 1))


async def session(services: Services, session_id: str) -> Session | None:
    """A session and the checkpoint it stands at, None if there is none or all of it has expired."""
    line = await reading.standing(services, rows.session_key(session_id))
    if line.tree is None or line.tip is None:
        return None
    return _session(services, session_id, line.tree, line.head, line.tip)


async def session_ids(services: Services, prefix: str, limit: int | None) -> list[str]:
    """The names of the sessions that begin so and stand at a checkpoint."""
    names: list[str] = []
    after: bytes | None = None
    while limit is None or len(names) < limit:
        page = await services.backend.scan(rows.HEAD, prefix=rows.session_key(prefix), after=after, limit=PAGE)
        if not page:
            break
        for key, row in page:
            try:
                if rows.unpack_head(key, row).checkpoint is not None:
                    names.append(rows.session_name(key.key))
            except HoldfastError as error:
                _leave_out(key, error)
        after = page[-1][0].key
    return names[:limit]


async def sessions(services: Services, *, agent_id: str | None = None, limit: int | None = None) -> list[Session]:
    """The sessions, the one saved to last first; with `agent_id` those whose head the agent made or was handed."""
    listed: list[Session] = []
    after: bytes | None = None
    while page := await services.backend.scan(rows.HEAD, after=after, limit=PAGE):
        listed += await _sessions_of(services, page)
        after = page[-1][0].key
    found = [one for one in listed if agent_id is None or agent_id in (one.head.agent_id, one.head.handoff_target)]
    found.sort(key=lambda one: one.head.created_at, reverse=True)
    return found[:limit]


async def _sessions_of(services: Services, page: Sequence[tuple[RowKey, Row]]) -> list[Session]:
    """The sessions of these head rows. Their records are read at once; only expired ones need a second look."""
    heads: list[tuple[RowKey, rows.Head]] = []
    for key, row in page:
        try:
            heads.append((key, rows.unpack_head(key, row)))
        except HoldfastError as error:
            _leave_out(key, error)
    records = iter(await services.backend.records([head.checkpoint for _, head in heads if head.checkpoint]))
    sessions = []
    for key, head in heads:
        if head.checkpoint is None:
            continue
        found = next(records)
        try:
            tip = record.unpack(services.codec, found.data, expected_id=found.id) if found else None
            if tip is None or await reading.is_over(services, tip):
                tip = await reading.nearest_live(services, head.checkpoint, key.tree)
            if tip is not None:
                sessions.append(_session(services, rows.session_name(key.key), key.tree, head, tip))
        except HoldfastError as error:
            _leave_out(key, error)
    return sessions


def _session(services: Services, session_id: str, tree_id: bytes, head: rows.Head, tip: Stored) -> Session:
    return Session(
        session_id=session_id,
        tree_id=ids.to_text(tree_id),
        head=record.checkpoint(services.codec, tip),
        saves=head.sequence,
    )


def _leave_out(key: RowKey, error: HoldfastError) -> None:
    """One session that can't be read must not hide the others."""
    _log.warning("session %r is left out of the list: %s", rows.session_name(key.key), error)


async def tree(services: Services, session_id: str, damaged: list[Damaged] | None = None) -> Tree:
    """All checkpoints of the session's tree, those of its forks included, newest first. One that is damaged raises, unless there is
    a list to put it into: that is for people who look for what is left, and says which checkpoints are missing, too."""
    tree_id = await reading.find_tree(services, rows.session_key(session_id))
    if tree_id is None:
        raise CheckpointNotFoundError(f"there is no session {session_id!r:.60}. `sessions` lists those that are there")
    entries: dict[str, Checkpoint] = {}
    expired: dict[str, str | None] = {}
    heads: dict[str, str] = {}
    for key, row in await services.backend.scan(rows.HEAD, tree=tree_id):
        name = rows.session_name(key.key)
        head: rows.Head | None = None
        try:
            head = rows.unpack_head(key, row)
            tip = await reading.nearest_live(services, head.checkpoint, tree_id)
            if tip is not None:
                heads[name] = ids.to_text(tip.id)
        except CorruptError as error:
            if damaged is None:
                raise
            if head is None or head.checkpoint is None:
                damaged.append(Damaged(session_id=name, sequence=0, checkpoint_id=None, message=str(error)))
            else:
                heads[name] = ids.to_text(head.checkpoint)
        records = await services.backend.session_records(key.key)
        if damaged is not None and head is not None:
            damaged += await _missing(services, tree_id, key.key, head, records)
        for found in records:
            try:
                stored = reading.listed_record(services, found, key.key)
            except CorruptError as error:
                if damaged is None:
                    raise
                id_ = ids.to_text(found.id)
                damaged.append(Damaged(session_id=name, sequence=found.sequence, checkpoint_id=id_, message=str(error)))
                continue
            if await reading.is_over(services, stored):
                expired[ids.to_text(stored.id)] = ids.to_text(stored.parent) if stored.parent else None
            else:
                entries[ids.to_text(stored.id)] = record.checkpoint(services.codec, stored)
    for grave in await graves.of_tree(services, tree_id):
        if (id_ := ids.to_text(grave.id)) not in entries:  # buried since it was read: it is shown as it was
            expired[id_] = ids.to_text(grave.parent) if grave.parent else None
    return Tree(
        tree_id=ids.to_text(tree_id),
        entries=_newest_first(entries, expired),
        expired=expired,
        heads=heads,
        handoffs={handoff.handoff_id: handoff for handoff in await inbox.of_tree(services, tree_id)},
    )


async def _missing(
    services: Services, tree_id: bytes, session: bytes, head: rows.Head, records: Sequence[Record]
) -> list[Damaged]:
    """The numbers up to the head's that no checkpoint of the session has, and none that was collected had."""
    missing = {*range(1, head.sequence + 1)}.difference(found.sequence for found in records)
    if missing:
        missing -= await graves.numbers_of(services, tree_id, session)
    name = rows.session_name(session)
    return [
        Damaged(session_id=name, sequence=number, checkpoint_id=None, message="it is missing: the store is damaged")
        for number in sorted(missing)
    ]


def _newest_first(entries: dict[str, Checkpoint], expired: dict[str, str | None]) -> tuple[Checkpoint, ...]:
    """Children before parents, whatever the clocks said. Time decides between branches, but a checkpoint counts as made
    after all its ancestors, expired ones included."""
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
