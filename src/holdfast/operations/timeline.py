"""timeline, sessions and tree: what is there, without any state."""

from __future__ import annotations

import logging

from holdfast.backends.port import Row, RowKey
from holdfast.errors import CheckpointNotFoundError, HoldfastError
from holdfast.model import ids
from holdfast.model import tree as trees
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.listing import Session, Timeline, Tree
from holdfast.objects import record, rows
from holdfast.operations import reading
from holdfast.operations.services import Services

PAGE = 200
_log = logging.getLogger("holdfast")


async def timeline(
    services: Services, session_id: str, *, agent_id: str | None = None, limit: int | None = 50
) -> Timeline:
    """The checkpoints of a session, all branches, newest first by sequence; with `agent_id` those that the agent made
    or was handed. Every record is checked; no state is read."""
    session = rows.session_key(session_id)
    now = services.now_us()
    entries: list[Checkpoint] = []
    before: int | None = None
    while limit is None or len(entries) < limit:
        page_size = PAGE if limit is None else min(PAGE, limit - len(entries))
        page = await services.backend.session_records(session, before=before, limit=page_size)
        for found in page:
            stored = reading.listed_record(services, found)
            if stored.is_expired(now):
                continue
            if agent_id is None or agent_id in (stored.header["agent"], stored.header.get("to")):
                entries.append(record.checkpoint(services.codec, stored))
        if len(page) < page_size:
            break
        before = page[-1].sequence
    return Timeline(entries)


async def sessions(services: Services, *, agent_id: str | None = None, limit: int | None = None) -> list[Session]:
    """The sessions, the one saved to last first; with `agent_id` those whose head the agent made or was handed."""
    found = []
    for key, row in await services.backend.scan(rows.HEAD):
        try:
            session = await _session(services, key, row)
        except HoldfastError as error:
            # One session that can't be read must not hide the others.
            _log.warning("session %r is left out of the list: %s", rows.session_name(key.key), error)
            continue
        if session and (agent_id is None or agent_id in (session.head.agent_id, session.head.handoff_target)):
            found.append(session)
    found.sort(key=lambda session: session.head.created_at, reverse=True)
    return found[:limit]


async def _session(services: Services, key: RowKey, row: Row) -> Session | None:
    head = rows.unpack_head(key, row)
    tip = await reading.nearest_live(services, head.checkpoint)
    if tip is None:
        return None
    return Session(
        session_id=rows.session_name(key.key),
        tree_id=ids.to_text(key.tree),
        head=record.checkpoint(services.codec, tip),
        saves=head.sequence,
    )


async def tree(services: Services, session_id: str) -> Tree:
    """All checkpoints of the session's tree, those of its forks included, newest first."""
    tree_id = await reading.find_tree(services, rows.session_key(session_id))
    if tree_id is None:
        raise CheckpointNotFoundError(f"there is no session {session_id!r:.60}. `sessions` lists those that are there")
    now = services.now_us()
    entries: dict[str, Checkpoint] = {}
    expired: dict[str, str | None] = {}
    heads: dict[str, str] = {}
    for key, row in await services.backend.scan(rows.HEAD, tree=tree_id):
        head = rows.unpack_head(key, row)
        if head.checkpoint is not None:
            heads[rows.session_name(key.key)] = ids.to_text(head.checkpoint)
        for found in await services.backend.session_records(key.key):
            stored = reading.listed_record(services, found)
            if stored.is_expired(now):
                expired[ids.to_text(stored.id)] = ids.to_text(stored.parent) if stored.parent else None
            else:
                entries[ids.to_text(stored.id)] = record.checkpoint(services.codec, stored)
    return Tree(tree_id=ids.to_text(tree_id), entries=_newest_first(entries, expired), expired=expired, heads=heads)


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
