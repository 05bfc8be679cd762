"""Rows of topics: the topic itself, its groups, their dead messages, and decisions about deliveries.

The row of a topic is in the tree of the store. A group has a tree that holds only its row and its
dead messages. A decision is in the tree of the session that consumes: `DONE` by the commit of its
checkpoint, `REVOKED` by a consumer that takes the message over. Either is written only where there
is none, so the first one counts.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import ormsgpack

from holdfast.backends.port import ABSENT, Row, RowKey, RowWrite
from holdfast.errors import NewerVersionError
from holdfast.format.rows import head
from holdfast.format.rows.fields import check_fields, make_damage_error, unpack_fields, unpack_name
from holdfast.model.group_state import GroupEntry, GroupState, Holder
from holdfast.model.lease import Process

TOPIC, GROUP, DEAD, TAKEN, CONSUMED = "topic", "group", "dead", "taken", "consumed"
DONE, REVOKED = "done", "revoked"
VERSION = 1
ID_BYTES = 16
_TEXT = (str, bytes)  # bytes: of a text with lone surrogates, which MessagePack has no form for
_ENTRY = (int, bytes, (*_TEXT, type(None)), int, int, int, (list, type(None)), list)
_STATE = (int, int, list, (str, type(None)), int, int, int, bool)
_HOLDER = (int, bytes, _TEXT, int, int, str, int, int)


def topic_key(topic: str) -> RowKey:
    return RowKey(TOPIC, head.session_key(topic))


def pack_topic(topic: str, at_us: int) -> RowWrite:
    key = topic_key(topic)
    return RowWrite(key, head.protect(key, ormsgpack.packb([VERSION, at_us])), ABSENT)


# -- groups ----------------------------------------------------------------------------------------------------------


def group_tree(topic: str, group: str) -> bytes:
    """Return the tree of a group's rows."""
    names = b"%d %b%b" % (len(head.session_key(topic)), head.session_key(topic), head.session_key(group))
    return hashlib.sha256(b"holdfast group 1\0" + names).digest()[:16]


def topic_prefix(topic: str) -> bytes:
    name = head.session_key(topic)
    return len(name).to_bytes(2, "big") + name


def group_key(topic: str, group: str) -> RowKey:
    return RowKey(GROUP, topic_prefix(topic) + head.session_key(group), group_tree(topic, group))


def names_of(key: RowKey) -> tuple[str, str]:
    """Return the topic and the group of a group's row."""
    end = 2 + int.from_bytes(key.key[:2], "big")
    return unpack_name(key, key.key[2:end]), unpack_name(key, key.key[end:])


def pack_group(key: RowKey, state: GroupState) -> bytes:
    entries = [_packed_entry(entry) for entry in state.entries]
    fields = [VERSION, state.cursor, state.token, entries, *state[3:]]
    return head.protect(key, ormsgpack.packb(fields))


def unpack_group(key: RowKey, row: Row) -> GroupState:
    version, *fields = unpack_fields(key, row, (int,), at_least=True)
    if version > VERSION:
        topic, group = names_of(key)
        raise NewerVersionError(f"group {group!r:.60} of topic {topic!r:.60} was written by a newer holdfast. Upgrade")
    check_fields(key, fields, _STATE)
    cursor, token, entries, *others = fields
    return GroupState(cursor, token, tuple(_entry(key, packed) for packed in entries), *others)


def _entry(key: RowKey, fields: Any) -> GroupEntry:
    check_fields(key, fields, _ENTRY)
    position, id_, of_key, at_us, attempts, not_before_us, holder, reasons = fields
    if len(id_) != ID_BYTES:
        raise make_damage_error(key)
    named = None if of_key is None else _text(key, of_key)
    held = _holder(key, holder)
    return GroupEntry(position, id_, named, at_us, attempts, not_before_us, held, _texts(key, reasons))


def _packed_entry(entry: GroupEntry) -> list[Any]:
    key = None if entry.key is None else _packed_text(entry.key)
    reasons = [*map(_packed_text, entry.reasons)]
    return [entry.position, entry.id, key, *entry[3:6], _packed_holder(entry.holder), reasons]


def _packed_holder(holder: Holder | None) -> list[Any] | None:
    if holder is None:
        return None
    token, tree, session, *others = holder[:5]
    return [token, tree, _packed_text(session), *others, *holder.process]


def _packed_text(text: str) -> str | bytes:
    try:
        text.encode()
    except UnicodeEncodeError:
        return head.session_key(text)
    return text


def _text(key: RowKey, packed: str | bytes) -> str:
    return packed if isinstance(packed, str) else unpack_name(key, packed)


def _texts(key: RowKey, packed: list[Any]) -> tuple[str, ...]:
    check_fields(key, packed, (_TEXT,) * len(packed))
    return tuple(_text(key, text) for text in packed)


def _holder(key: RowKey, fields: list[Any] | None) -> Holder | None:
    if fields is None:
        return None
    check_fields(key, fields, _HOLDER)
    token, tree, session, fence, until_us, *process = fields
    return Holder(token, tree, _text(key, session), fence, until_us, Process(*process))


# -- dead messages ---------------------------------------------------------------------------------------------------


class DeadRow(NamedTuple):
    """A message that a group gave up."""

    attempts: int
    at_us: int
    reasons: tuple[str, ...]

    def pack(self, key: RowKey) -> bytes:
        return head.protect(key, ormsgpack.packb([self.attempts, self.at_us, [*map(_packed_text, self.reasons)]]))


def dead_key(topic: str, group: str, id_: bytes) -> RowKey:
    return RowKey(DEAD, group_key(topic, group).key + id_, group_tree(topic, group))


def unpack_dead(key: RowKey, row: Row) -> DeadRow:
    attempts, at_us, reasons = unpack_fields(key, row, (int, int, list))
    return DeadRow(attempts, at_us, _texts(key, reasons))


# -- decisions -------------------------------------------------------------------------------------------------------


def decision_key(group: bytes, id_: bytes, token: int, tree: bytes) -> RowKey:
    """Return the key of the decision about one delivery; `group` is the group's tree."""
    return RowKey(TAKEN, group + id_ + token.to_bytes(8, "big"), tree)


def split_taken(key: RowKey) -> tuple[bytes, bytes, int]:
    """Return the group's tree, the message and the token of a decision."""
    return key.key[:16], key.key[16:32], int.from_bytes(key.key[32:], "big")


class DeliveryDecision(NamedTuple):
    """A decision about a delivery, the session that it is about, and the token of that session's lease."""

    what: str
    session: str
    fence: int

    @property
    def is_done(self) -> bool:
        """Whether the message was consumed."""
        return self.what == DONE

    def write(self, key: RowKey) -> RowWrite:
        content = ormsgpack.packb([self.what, head.session_key(self.session), self.fence])
        return RowWrite(key, head.protect(key, content), ABSENT)


def unpack_decision(key: RowKey, row: Row) -> DeliveryDecision:
    verdict, session, fence = unpack_fields(key, row, (str, bytes, int))
    return DeliveryDecision(verdict, unpack_name(key, session), fence)


def topic_name(key: RowKey) -> str:
    """Return the topic of a topic's row."""
    return unpack_name(key, key.key)


# -- imported messages -----------------------------------------------------------------------------------------------


def consumed_key(topic: str, group: str, id_: bytes) -> bytes:
    """Return the key of a row that says that a group has settled a message, in the message's tree."""
    return id_ + group_key(topic, group).key


def names_of_consumed(key: bytes) -> tuple[str, str]:
    return names_of(RowKey(GROUP, key[16:]))
