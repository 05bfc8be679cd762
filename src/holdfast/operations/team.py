"""team: the sessions that delegated and handed over work, who holds them, and who waits for whom."""

from __future__ import annotations

from dataclasses import replace

from holdfast.errors import CheckpointNotFoundError
from holdfast.format.rows import head as rows
from holdfast.format.rows.delegation import DelegationRow, WaitRow
from holdfast.format.rows.inbox import Entry, FollowUp, LastClaim
from holdfast.model import ids
from holdfast.model.moment import moment_of
from holdfast.model.team import (
    ABANDONED,
    ANSWERED,
    CANCELLED,
    IDLE,
    NOT_MADE,
    OFFERED,
    RUNNING,
    UNSERVED,
    Team,
    TeamMember,
    TeamWait,
)
from holdfast.operations import delegation, inbox, lookup, team_groups, wait
from holdfast.operations import lease as leasing
from holdfast.operations.context import StoreContext


async def team(ctx: StoreContext, session_id: str) -> Team:
    """Return a session with its delegations, depth first, and the sessions that delegated it."""
    tree = await lookup.find_tree(ctx, rows.session_key(session_id))
    if tree is None:
        raise CheckpointNotFoundError(f"there is no session {session_id!r:.200}. `sessions` lists those that are there")
    members: list[TeamMember] = []
    waits: dict[str, list[WaitRow]] = {}
    left: list[tuple[str, DelegationRow | None, int]] = [(session_id, None, 0)]
    seen: set[str] = set()
    while left:
        name, offered, depth = left.pop()
        if name in seen:
            continue
        seen.add(name)
        at = await lookup.find_tree(ctx, rows.session_key(name))
        members.append(await _member(ctx, name, at, offered, depth))
        if at is not None:
            waits[name] = [wait_row for wait_row in await wait.waits_of(ctx, at) if wait_row.session == name]
            children = await delegation.list_children(ctx, at, name)
            left += [(child.child, child, depth + 1) for child in reversed(children)]
    groups = await team_groups.groups_of(ctx, seen, [wait_row for noted in waits.values() for wait_row in noted])
    return Team(
        session_id=session_id,
        origins=await _origins(ctx, tree),
        members=_add_waits(members, waits),
        groups=groups,
    )


async def _member(
    ctx: StoreContext, name: str, tree: bytes | None, offered: DelegationRow | None, depth: int
) -> TeamMember:
    entry = await delegation.entry_of(ctx, offered) if offered is not None else None
    found = await lookup.find_head(ctx, rows.session_key(name), tree) if tree is not None else None
    head = found[0] if found is not None else None
    status, holder, since = _status(ctx, head, entry, is_delegated=offered is not None)
    agent = offered.agent if offered is not None else None
    if agent is None and head is not None and head.checkpoint is not None:
        tip = await lookup.find_record(ctx, head.checkpoint, tree)
        agent = tip.header["agent"] if tip is not None else None
    handed = await inbox.list_handoffs(ctx, tree) if tree is not None else []
    return TeamMember(
        session_id=name,
        parent_id=offered.session if offered is not None else None,
        depth=depth,
        agent_id=agent,
        status=status,
        holder=holder,
        since=None if since is None else moment_of(since),
        handoff_id=ids.to_text(offered.offer) if offered is not None else None,
        handoffs=tuple(handoff for handoff in handed if handoff.session_id == name and handoff.delegated_by is None),
    )


def _status(
    ctx: StoreContext, head: rows.Head | None, entry: Entry, *, is_delegated: bool
) -> tuple[str, str | None, int | None]:
    """Return the status of a session, who holds it or ended it, and since when."""
    held = head.lease if head is not None else None
    if held is not None and (made := held.cancellation) is not None:
        return CANCELLED, made.by, made.at_us
    if isinstance(entry, FollowUp):
        return ANSWERED, rows.session_name(entry.by), entry.at_us
    if held is not None and leasing.is_alive(ctx, held):
        since = entry.at_us if isinstance(entry, LastClaim) else None
        return RUNNING, rows.session_name(held.holder), since
    if not is_delegated:
        return IDLE, None, None
    if head is None:
        return NOT_MADE, None, None
    return (ABANDONED, None, entry.at_us) if isinstance(entry, LastClaim) else (OFFERED, None, None)


def _add_waits(members: list[TeamMember], waits: dict[str, list[WaitRow]]) -> tuple[TeamMember, ...]:
    """Return the members with their waits. A cancelled or answered session waits for nothing."""
    status = {member.session_id: member.status for member in members}
    shown = []
    for member in members:
        noted = waits.get(member.session_id, []) if member.status not in (CANCELLED, ANSWERED) else []
        shown.append(replace(member, waits=tuple(_make_wait(found, status) for found in noted)))
    return tuple(shown)


def _make_wait(noted: WaitRow, status: dict[str, str]) -> TeamWait:
    return TeamWait(
        session_id=noted.session,
        kind=noted.kind,
        targets=noted.targets,
        since=moment_of(noted.since_us),
        until=None if noted.until_us is None else moment_of(noted.until_us),
        unserved=tuple(target for target in noted.targets if status.get(target) in UNSERVED),
    )


async def _origins(ctx: StoreContext, tree: bytes) -> tuple[str, ...]:
    """Return the sessions that lead to the work of a tree, the nearest first."""
    found: list[str] = []
    at: bytes | None = tree
    while at is not None:
        first = await lookup.find_record(ctx, at, at)
        origin = first.header.get("origin") if first is not None else None
        if origin is None or origin[0] in found:
            break
        found.append(origin[0])
        at = await lookup.find_tree(ctx, rows.session_key(origin[0]))
    return tuple(found)
