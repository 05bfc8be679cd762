"""Holds: why a checkpoint is kept. A pin holds it, and so does each of its tags.

All reasons stand in one row of the checkpoint's tree, so that one condition of a commit ("there is no such row") keeps an
expiry from taking what is held. A tag's own row, which finds the checkpoint by the tag's name, belongs to the store.
"""

from __future__ import annotations

from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import Row, RowKey, RowWrite
from holdfast.objects import rows
from holdfast.objects.record import Stored

PIN, TAG, UNTIL = "pin", "tag", "until"


class Hold(NamedTuple):
    """Since when a checkpoint is pinned (None: it is not), with which note, and the names of its tags. Text is kept as
    `rows.session_key` encodes it."""

    pinned_at_us: int | None = None
    note: bytes | None = None
    tags: tuple[bytes, ...] = ()

    def with_tag(self, name: bytes) -> Hold:
        return self._replace(tags=tuple(sorted({*self.tags, name})))

    def without_tags(self, names: set[bytes]) -> Hold:
        return self._replace(tags=tuple(name for name in self.tags if name not in names))

    def pack(self, key: RowKey) -> bytes | None:
        """The row's value, None for a hold without a reason: then there is no row."""
        if self == NOT_HELD:
            return None
        return rows.protect(key, ormsgpack.packb([self.pinned_at_us, self.note, list(self.tags)]))


NOT_HELD = Hold()


def hold_key(checkpoint: bytes, tree: bytes) -> RowKey:
    return RowKey(PIN, checkpoint, tree)


def unpack_hold(key: RowKey, row: Row | None) -> Hold:
    if row is None:
        return NOT_HELD
    pinned_at_us, note, tags = ormsgpack.unpackb(rows.content(key, row))
    return Hold(pinned_at_us, note, tuple(tags))


def until_key(stored: Stored) -> RowKey:
    """Where it is said until when a checkpoint is kept beyond its own time to live. Checkpoints that can't be read without
    each other name the same one, the first of them, and live as long as the youngest."""
    return RowKey(UNTIL, stored.kept_with or stored.id, stored.tree)


def prolonged(stored: Stored) -> list[RowWrite]:
    """What keeps those that a new checkpoint is kept with until its own end."""
    if stored.kept_with is None or stored.expires_at_us is None:
        return []
    key = until_key(stored)
    return [RowWrite(key, rows.protect(key, ormsgpack.packb(stored.expires_at_us)))]


def unpack_until(key: RowKey, row: Row) -> int:
    until = ormsgpack.unpackb(rows.content(key, row))
    return until if type(until) is int else 0


class TagRow(NamedTuple):
    """Where a tag stands. It counts only if the checkpoint's hold names it, too: rows of the store may become visible
    before the rest of their commit, even when that is refused."""

    checkpoint: bytes
    tree: bytes
    tagged_at_us: int

    def pack(self, key: RowKey) -> bytes:
        return rows.protect(key, ormsgpack.packb(list(self)))


def tag_key(name: bytes) -> RowKey:
    return RowKey(TAG, name)


def unpack_tag(key: RowKey, row: Row) -> TagRow:
    return TagRow(*ormsgpack.unpackb(rows.content(key, row)))
