"""gc_topics: retention of messages, and the decisions about deliveries that are over. Part of `gc`.

A message is expired once it is older than its `keep` seconds and every live group of its topic has
settled it; a dead message counts as not settled. Its record's own time to live is the upper limit.
A decision `DONE` is first acknowledged in its group: the tree that has it may go. A decision
`REVOKED` stays until its session has another lease, since it refuses the commit of the one before.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.backends.port import Commit, CommitConflict, Record, RowKey, RowWrite, check_readable
from holdfast.errors import CheckpointNotFoundError, HoldfastError
from holdfast.format.rows import head
from holdfast.format.rows import topic as rows
from holdfast.format.state.record import StoredRecord
from holdfast.operations import group as groups
from holdfast.operations import lookup, read_topic, topic_status
from holdfast.operations.context import StoreContext
from holdfast.operations.expire import BY_TTL, tombstone_all
from holdfast.operations.group import TopicGroup

PAGE = 500


async def gc_topics(ctx: StoreContext) -> int:
    """Settle decisions, and expire messages that no group needs; return how many."""
    known = {rows.group_tree(*names): TopicGroup(*names) for names in await _group_names(ctx)}
    after: bytes | None = None
    while page := check_readable(await ctx.backend.scan(rows.TAKEN, after=after, limit=PAGE)):
        for key, row in page:
            if await _is_over(ctx, key, rows.unpack_decision(key, row), known.get(key.key[:16])):
                await _drop(ctx, RowWrite(key, None, row.version))
        after = page[-1][0].key
    return sum([await _expire(ctx, topic) for topic in await topic_status.topic_names(ctx)])


async def gc_consumed(ctx: StoreContext) -> None:
    """Remove what was imported about the consumption of messages that are gone."""
    after: bytes | None = None
    while page := check_readable(await ctx.backend.scan(rows.CONSUMED, after=after, limit=PAGE)):
        found = await ctx.backend.records([key.key[:16] for key, _ in page])
        for (key, row), record in zip(page, found, strict=True):
            if record is None:
                await _drop(ctx, RowWrite(key, None, row.version))
        after = page[-1][0].key


async def gc_dead(ctx: StoreContext) -> None:
    """Remove dead messages that are gone from the lists of their groups."""
    after: bytes | None = None
    while page := check_readable(await ctx.backend.scan(rows.DEAD, after=after, limit=PAGE)):
        ids = [key.key[-16:] for key, _ in page]
        for (key, _), id_, record in zip(page, ids, await ctx.backend.records(ids), strict=True):
            if record is None:
                names = rows.names_of(key._replace(key=key.key[:-16]))
                with suppress(CheckpointNotFoundError):  # a row without its group is none of ours
                    await groups.discard(ctx, TopicGroup(*names), id_)
        after = page[-1][0].key


async def _group_names(ctx: StoreContext) -> list[tuple[str, str]]:
    return [rows.names_of(key) for key, _ in check_readable(await ctx.backend.scan(rows.GROUP))]


async def _is_over(ctx: StoreContext, key: RowKey, decision: rows.DeliveryDecision, group: TopicGroup | None) -> bool:
    _, id_, token = rows.split_taken(key)
    found = await lookup.find_head(ctx, head.session_key(decision.session), key.tree)
    if decision.is_done:
        if group is not None:
            await groups.acknowledge(ctx, group, id_, token)
        return True
    return found is None or found[0].fence != decision.fence


async def _drop(ctx: StoreContext, write: RowWrite) -> None:
    try:
        await ctx.backend.commit(Commit(tree=write.key.tree, rows=[write]))
    except CommitConflict:
        return  # another caller was first


async def _expire(ctx: StoreContext, topic: str) -> int:
    """Expire the messages of a topic that are old enough, and settled by all live groups."""
    found = await read_topic.groups_of(ctx, topic)
    live = {name: state for name, state in found if read_topic.is_live(ctx, state)}
    lowest = min((state.first_unsettled for state in live.values()), default=None)
    dead = {id_ for name, id_, _ in await groups.dead_of(ctx, topic, None) if name in live}
    now, after, count = ctx.now_us(), 0, 0
    while True:
        page, after = await read_topic.changes_of(ctx, topic, after, PAGE)
        ending: dict[bytes, list[tuple[Record, StoredRecord]]] = {}
        for change in page:
            if lowest is not None and change.position >= lowest:
                break
            try:
                stored = read_topic.unpack_message(ctx, change, topic)
            except HoldfastError:
                continue  # `verify` reports it
            keep = stored.header.get("keep")
            is_needed = stored.is_tombstone or stored.id in dead  # a person may have a dead one redelivered
            if not is_needed and keep is not None and stored.header["at"] + round(keep * 1e6) <= now:
                ending.setdefault(stored.tree, []).append((change.record, stored))
        for tree, over in ending.items():
            count += len(await tombstone_all(ctx, tree, over, BY_TTL))
        if len(page) < PAGE or (lowest is not None and after >= lowest):
            return count
