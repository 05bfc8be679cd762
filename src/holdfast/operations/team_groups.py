"""team_groups: the groups of topics that sessions of a team publish to, consume or wait for."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.backends.port import Record
from holdfast.errors import HoldfastError
from holdfast.format.rows import head
from holdfast.format.rows import topic as rows
from holdfast.format.rows.delegation import WaitRow
from holdfast.model.message import GroupStatus
from holdfast.operations import lookup, topic_status
from holdfast.operations.context import StoreContext

RECENT = 100  # records of each session that are read for the topics it uses
WAITS = ("receive", "message")  # kinds of waits whose targets are topics


async def groups_of(ctx: StoreContext, sessions: Collection[str], waits: Iterable[WaitRow]) -> tuple[GroupStatus, ...]:
    """Return the groups of the topics that these sessions have lately used, by topic and name."""
    topics = {target for wait in waits if wait.kind in WAITS for target in wait.targets}
    for session in sessions:
        for session_record in await ctx.backend.session_records(head.session_key(session), limit=RECENT):
            topics |= _topics_of(ctx, session_record)
    for key, row in await ctx.backend.scan(rows.GROUP):
        held = {entry.holder.session for entry in rows.unpack_group(key, row).entries if entry.holder is not None}
        if not held.isdisjoint(sessions):
            topics.add(rows.names_of(key)[0])
    found = [group for topic in sorted(topics) for group in (await topic_status.status(ctx, topic)).groups]
    return tuple(sorted(found, key=lambda status: (status.topic, status.group)))


def _topics_of(ctx: StoreContext, found: Record) -> set[str]:
    """Return the topics that a record names: of a message, or of those that a checkpoint has consumed."""
    try:
        header = lookup.unpack_listed(ctx, found).header
    except HoldfastError:  # `verify` reports it
        return set()
    published = {header["topic"]} if "topic" in header else set()
    return published | {topic for topic, *_ in header.get("took", ())}
