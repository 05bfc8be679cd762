"""Handoffs and teams as JSON."""

from __future__ import annotations

from typing import Any

from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.json_form.topic import group_fields
from holdfast.json_form.values import format_time
from holdfast.model.handoff import Handoff
from holdfast.model.team import Team, TeamMember, TeamWait


def handoff_fields(handoff: Handoff) -> dict[str, Any]:
    return {
        "handoff_id": handoff.handoff_id,
        "short_id": handoff.checkpoint.short_id,
        "session_id": handoff.session_id,
        "from_agent_id": handoff.from_agent_id,
        "target_agent_id": handoff.target_agent_id,
        "schema": handoff.schema,
        "offered_at": format_time(handoff.offered_at),
        "status": str(handoff.status),
        "by": handoff.by,
        "since": format_time(handoff.since) if handoff.since else None,
        "next_id": handoff.next_id,
        "delegated_by": handoff.delegated_by,
        "checkpoint": checkpoint_fields(handoff.checkpoint),
    }


def team_fields(found: Team) -> dict[str, Any]:
    return {
        "session_id": found.session_id,
        "origins": list(found.origins),
        "members": [_member_fields(member) for member in found.members],
        "unserved": [_wait_fields(team_wait) for team_wait in found.unserved],
        "groups": [{"topic": group.topic, **group_fields(group)} for group in found.groups],
    }


def _member_fields(member: TeamMember) -> dict[str, Any]:
    return {
        "session_id": member.session_id,
        "parent_id": member.parent_id,
        "depth": member.depth,
        "agent_id": member.agent_id,
        "status": member.status,
        "holder": member.holder,
        "since": format_time(member.since) if member.since else None,
        "handoff_id": member.handoff_id,
        "handoffs": [handoff_fields(handoff) for handoff in member.handoffs],
        "waits": [_wait_fields(wait) for wait in member.waits],
    }


def _wait_fields(wait: TeamWait) -> dict[str, Any]:
    return {
        "session_id": wait.session_id,
        "kind": wait.kind,
        "targets": list(wait.targets),
        "since": format_time(wait.since),
        "until": format_time(wait.until) if wait.until else None,
        "unserved": list(wait.unserved),
    }
