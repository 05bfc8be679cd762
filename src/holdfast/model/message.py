"""Messages: what is published to a topic, what its readers get, and the state of its groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.model.ids import short

if TYPE_CHECKING:
    from holdfast.coordination.contract import Contract

DAY = 86_400.0
TTL = 7 * DAY
MAX_TTL = 30 * DAY
MAX_WAITING = 10_000
MAX_BYTES = 1_000_000  # of a value; more is published as the id of a checkpoint
MAX_ATTEMPTS = 5
MAX_TOPIC = 200  # characters


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be published: its topic and value, and optionally contract, ordering key and retention.

    Messages with the same `key` reach a group in order, one at a time. The message is kept for
    `ttl` seconds, and longer while a group has not consumed it, up to `max_ttl`. While a group has
    `max_waiting` messages left, publishing waits for at most `wait` seconds.
    """

    topic: str
    value: Any
    contract: Contract[Any] | None = field(default=None, kw_only=True)
    key: str | None = field(default=None, kw_only=True)
    ttl: float = field(default=TTL, kw_only=True)
    max_ttl: float = field(default=MAX_TTL, kw_only=True)
    max_waiting: int = field(default=MAX_WAITING, kw_only=True)
    wait: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMessage:
    """A message that was published. Reading on from `cursor` returns the messages after it."""

    message_id: str
    topic: str
    value: Any
    key: str | None
    agent_id: str
    session_id: str | None  # of the publisher, if it was published in a session
    contract: str | None  # the label of its contract, such as "draft@1"
    published_at: datetime
    cursor: str

    def __repr__(self) -> str:
        return f"<TopicMessage {short(self.message_id)} of {self.topic!r:.60} by {self.agent_id!r:.60}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMessage:
    """A message that a group gave up: after how many attempts, when, and why."""

    message_id: str
    topic: str
    group: str
    attempts: int
    reasons: tuple[str, ...]
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """The progress of a group: its messages waiting, in flight and dead, and when it was last seen."""

    topic: str
    group: str
    waiting: int
    in_flight: int
    dead: int
    oldest: datetime | None  # of the messages that wait
    last_seen: datetime
    is_live: bool
    contract: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """A topic: its retained messages and its groups."""

    topic: str
    messages: int
    oldest: datetime | None
    newest: datetime | None
    groups: tuple[GroupStatus, ...]


def check_topic(topic: Any, parameter: str = "topic") -> str:
    """Return the name of a topic or a group, if it can be one."""
    if not isinstance(topic, str) or not topic or len(topic) > MAX_TOPIC or not topic.isprintable():
        raise UsageError(
            f"{parameter} is {topic!r:.80}: it must be a printable text of at most {MAX_TOPIC} characters, such as "
            "'drafts'"
        )
    return topic
