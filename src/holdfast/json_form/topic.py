"""Topics, groups and messages as JSON."""

from __future__ import annotations

from typing import Any

from holdfast.json_form.values import format_time, to_json
from holdfast.model.message import DeadMessage, GroupStatus, TopicMessage, TopicStatus


def topic_fields(status: TopicStatus) -> dict[str, Any]:
    return {
        "topic": status.topic,
        "messages": status.messages,
        "oldest": format_time(status.oldest) if status.oldest else None,
        "newest": format_time(status.newest) if status.newest else None,
        "groups": [group_fields(group) for group in status.groups],
    }


def group_fields(group: GroupStatus) -> dict[str, Any]:
    return {
        "group": group.group,
        "waiting": group.waiting,
        "in_flight": group.in_flight,
        "dead": group.dead,
        "oldest": format_time(group.oldest) if group.oldest else None,
        "last_seen": format_time(group.last_seen),
        "is_live": group.is_live,
        "contract": group.contract,
    }


def message_fields(message: TopicMessage) -> dict[str, Any]:
    return {
        "cursor": message.cursor,
        "message_id": message.message_id,
        "topic": message.topic,
        "key": message.key,
        "agent_id": message.agent_id,
        "session_id": message.session_id,
        "contract": message.contract,
        "published_at": format_time(message.published_at),
        "value": to_json(message.value),
    }


def dead_fields(message: DeadMessage) -> dict[str, Any]:
    return {
        "message_id": message.message_id,
        "topic": message.topic,
        "group": message.group,
        "attempts": message.attempts,
        "reasons": list(message.reasons),
        "since": format_time(message.since),
    }
