"""topic_status: topics, their groups, and their dead messages, as people see them."""

from __future__ import annotations

import logging

from holdfast.errors import HoldfastError
from holdfast.format.rows import topic as rows
from holdfast.model import ids
from holdfast.model.group_state import GroupState
from holdfast.model.message import DeadMessage, GroupStatus, TopicStatus, check_topic
from holdfast.model.moment import moment_of
from holdfast.operations import group as groups
from holdfast.operations import lookup, read_topic
from holdfast.operations.context import StoreContext
from holdfast.operations.group import TopicGroup

_log = logging.getLogger("holdfast")
Waiting = list[tuple[int, int]]  # position and time of each retained message


async def topics(ctx: StoreContext, topic: str | None) -> list[TopicStatus]:
    """Return all topics that were published to or consumed, or one."""
    names = await topic_names(ctx)
    if topic is not None:
        names = [name for name in names if name == topic]
    return [await status(ctx, name) for name in names]


async def topic_names(ctx: StoreContext) -> list[str]:
    """Return the names of all topics."""
    return [rows.topic_name(key) for key, _ in await ctx.backend.scan(rows.TOPIC)]


async def status(ctx: StoreContext, topic: str) -> TopicStatus:
    """Return the retained messages and the groups of a topic."""
    messages = await _count_retained(ctx, topic)
    found = [_group(ctx, topic, name, state, messages) for name, state in await read_topic.groups_of(ctx, topic)]
    return TopicStatus(
        topic=topic,
        messages=len(messages),
        oldest=moment_of(messages[0][1]) if messages else None,
        newest=moment_of(messages[-1][1]) if messages else None,
        groups=tuple(found),
    )


async def _count_retained(ctx: StoreContext, topic: str) -> Waiting:
    found: Waiting = []
    after = 0
    while True:
        page, after = await read_topic.changes_of(ctx, topic, after, read_topic.PAGE)
        for change in page:
            try:
                stored = lookup.unpack_listed(ctx, change.record)
                if not await lookup.is_expired(ctx, stored):
                    found.append((change.position, stored.header["at"]))
            except HoldfastError as error:
                _log.warning("message %s is left out of the count: %s", ids.to_text(change.record.id), error)
        if len(page) < read_topic.PAGE:
            return found


def _group(ctx: StoreContext, topic: str, name: str, state: GroupState, messages: Waiting) -> GroupStatus:
    opened = [entry for entry in state.entries if entry.holder is None]
    behind = [at for position, at in messages if position > state.cursor]
    waiting = [*(group_entry.at_us for group_entry in opened), *behind]
    return GroupStatus(
        topic=topic,
        group=name,
        waiting=len(waiting),
        in_flight=len(state.entries) - len(opened),
        dead=state.dead,
        oldest=moment_of(min(waiting)) if waiting else None,
        last_seen=moment_of(state.seen_us),
        is_live=read_topic.is_live(ctx, state),
        contract=state.contract,
    )


async def list_dead(ctx: StoreContext, topic: str, group: str | None) -> list[DeadMessage]:
    """Return the dead messages of a topic's groups, the one given up last first."""
    found = [
        DeadMessage(
            message_id=ids.to_text(id_),
            topic=topic,
            group=name,
            attempts=row.attempts,
            reasons=row.reasons,
            since=moment_of(row.at_us),
        )
        for name, id_, row in await groups.dead_of(ctx, topic, group)
    ]
    return sorted(found, key=lambda message: message.since, reverse=True)


async def redeliver(ctx: StoreContext, topic: str, group: str, id_: bytes) -> None:
    await groups.redeliver(ctx, TopicGroup(check_topic(topic), check_topic(group, "group")), id_)


async def discard(ctx: StoreContext, topic: str, group: str, id_: bytes) -> bool:
    return await groups.discard(ctx, TopicGroup(check_topic(topic), check_topic(group, "group")), id_)
