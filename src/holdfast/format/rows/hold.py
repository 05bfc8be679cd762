"""Holds: why a checkpoint is kept. A pin holds it, and so does each of its tags.

All reasons are in one row of the checkpoint's tree, so that one condition of a commit ("there is no
such row") protects held checkpoints from expiry. A tag's own row, which finds the checkpoint by the
tag's name, belongs to the store.
"""

from __future__ import annotations

from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import Row, RowKey, RowWrite
from holdfast.format.rows import head
from holdfast.format.state.record import StoredRecord

PIN, TAG, UNTIL = "pin", "tag", "until"


class Hold(NamedTuple):
    """The time at which a checkpoint was pinned (None: it is not), the note, and the names of its tags.

    Text is encoded by `rows.session_key`.
    """

    pinned_at_us: int | None = None
    note: bytes | None = None
    tags: tuple[bytes, ...] = ()

    def with_tag(self, name: bytes) -> Hold:
        return self._replace(tags=tuple(sorted({*self.tags, name})))

    def without_tags(self, names: set[bytes]) -> Hold:
        return self._replace(tags=tuple(name for name in self.tags if name not in names))

    def pack(self, key: RowKey) -> bytes | None:
        """Return the row's value, None for a hold without a reason: then there is no row."""
        if self == NOT_HELD:
            return None
        return head.protect(key, ormsgpack.packb([self.pinned_at_us, self.note, list(self.tags)]))


NOT_HELD = Hold()


def hold_key(checkpoint: bytes, tree: bytes) -> RowKey:
    return RowKey(PIN, checkpoint, tree)


def unpack_hold(key: RowKey, row: Row | None) -> Hold:
    if row is None:
        return NOT_HELD
    pinned_at_us, note, tags = ormsgpack.unpackb(head.content(key, row))
    return Hold(pinned_at_us, note, tuple(tags))


def extension_key(stored: StoredRecord) -> RowKey:
    """Return the key of the row that extends a checkpoint beyond its own time to live.

    Checkpoints that can't be read without each other share one key, that of the first, and live as
    long as the youngest.
    """
    return RowKey(UNTIL, stored.depends_on or stored.id, stored.tree)


def extended_until(stored: StoredRecord) -> list[RowWrite]:
    """Return the writes that keep a new checkpoint's companions until its own end."""
    if stored.depends_on is None or stored.expires_at_us is None:
        return []
    key = extension_key(stored)
    return [RowWrite(key, head.protect(key, ormsgpack.packb(stored.expires_at_us)))]


def unpack_until(key: RowKey, row: Row) -> int:
    until = ormsgpack.unpackb(head.content(key, row))
    return until if type(until) is int else 0


class TagRow(NamedTuple):
    """The target of a tag.

    It counts only if the checkpoint's hold names the tag, too: rows of the store may become visible
    before the rest of their commit, even when the commit is refused.
    """

    checkpoint: bytes
    tree: bytes
    tagged_at_us: int

    def pack(self, key: RowKey) -> bytes:
        return head.protect(key, ormsgpack.packb(list(self)))


def tag_key(name: bytes) -> RowKey:
    return RowKey(TAG, name)


def unpack_tag(key: RowKey, row: Row) -> TagRow:
    return TagRow(*ormsgpack.unpackb(head.content(key, row)))
