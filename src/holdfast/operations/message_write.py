"""The records of messages in a commit, and of a message the feed of its topic."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.backends.port import RecordWrite, RowKey, RowWrite
from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError, UsageError
from holdfast.format.rows import head as rows
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.format.state.write_plan import WritePlan
from holdfast.model import ids

TOPIC, TAKEN = "topic", "taken"  # spaces of rows: `format/rows/topic.py`
_SENT_DIGEST = 16


class MessageWrite(NamedTuple):
    """An encoded message: header fields, state, and an id unless it follows from the checkpoint.

    `hints` are at parked runs that wait for it.
    """

    fields: Mapping[str, Any]
    plan: WritePlan
    id: bytes | None = None
    hints: Sequence[RowWrite] = ()

    @property
    def sent(self) -> list[bytes | None]:
        """The entry in the header of the checkpoint that it is published with."""
        about = [self.fields["topic"], self.fields.get("key"), self.fields.get("toschema")]
        digest = hashlib.sha256(repr(about).encode("utf-8", "surrogatepass") + self.plan.manifest.root())
        return [self.id, digest.digest()[:_SENT_DIGEST]]


class Consumption(NamedTuple):
    """A message that a checkpoint consumes, under the token of its claim; `group_tree` names the group."""

    topic: str
    group: str
    id: bytes
    token: int
    group_tree: bytes
    session: str
    fence: int  # the token of the session's lease

    @property
    def took(self) -> list[Any]:
        """The entry in the header of the checkpoint."""
        return [self.topic, self.group, self.id]

    def key(self, tree: bytes) -> RowKey:
        """Return the key of the decision, in the tree of the consumer."""
        from holdfast.format.rows import topic  # not needed by a save without messages

        return topic.decision_key(self.group_tree, self.id, self.token, tree)

    def write(self, tree: bytes) -> RowWrite:
        """Return the write of the decision, which is refused if another consumer has taken the message over."""
        from holdfast.format.rows import topic

        return topic.DeliveryDecision(topic.DONE, self.session, self.fence).write(self.key(tree))


def is_leaf(stored: StoredRecord) -> bool:
    """Return whether a record is a message that was published with a checkpoint: no head is at it."""
    return "topic" in stored.header and not is_lane(stored)


def is_lane(stored: StoredRecord) -> bool:
    """Return whether a message was published without a session."""
    return bool(stored.session.startswith(f"topic/{stored.header['topic']}/"))


def feed_of(header: Mapping[str, Any]) -> bytes | None:
    """Return the feed of a record: the topic, if it is a message."""
    topic = header.get("topic")
    return rows.session_key(topic) if isinstance(topic, str) else None


def sent_ids(stored: StoredRecord) -> list[bytes]:
    """Return the ids of the messages that were published with a checkpoint."""
    return [item[0] or ids.sibling(stored.id, number) for number, item in enumerate(stored.header.get("sent", ()))]


def check_header(stored: StoredRecord) -> StoredRecord:
    """Return the record of a message; raise an error if it is that of no message."""
    if "topic" not in stored.header and not stored.is_tombstone:
        raise CorruptError(f"{ids.to_text(stored.id)} is no message: the store was changed by another program")
    return stored


def message_records(codec: Codec, parent: StoredRecord, messages: Sequence[MessageWrite]) -> list[RecordWrite]:
    """Return the records of messages that are published with a checkpoint: its children."""
    found = []
    for number, (message, id_) in enumerate(zip(messages, sent_ids(parent), strict=True)):
        if parent.session.startswith(f"topic/{message.fields['topic']}/"):
            raise UsageError(
                f"session {parent.session!r:.100} has the name of a session that holdfast makes for its topic's "
                "messages: give it another one"
            )
        manifest = message.plan.manifest
        header = {
            "id": id_,
            "seq": parent.sequence + 1 + number,
            "at": parent.header["at"],
            "agent": parent.header["agent"],
            "session": parent.session,
            **message.fields,
            "tree": parent.tree,
            "parent": parent.id,
            "psum": parent.checksum,
        }
        data, stored = record.pack(codec, header, manifest)
        found.append(
            RecordWrite(
                id_,
                rows.session_key(parent.session),
                stored.sequence,
                data,
                stored.labels(),
                stored.expires_at_us,
                spans=manifest.spans(),
                feed=feed_of(header),
            )
        )
    return found
