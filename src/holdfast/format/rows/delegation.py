"""Rows of delegated work, in the tree of the session that delegates it: children, and waits.

A child's row is written before the child: a cancellation finds every child that is, or may come.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import ABSENT, Row, RowKey, RowWrite
from holdfast.format.rows import head, inbox
from holdfast.format.rows.fields import (
    OPTIONAL_BYTES,
    OPTIONAL_INT,
    OPTIONAL_STR,
    check_fields,
    make_damage_error,
    unpack_fields,
    unpack_name,
)

DELEGATION, WAIT = "delegation", "wait"
ID_BYTES = 16
_DELEGATION = (bytes, bytes, bytes, OPTIONAL_BYTES, int, OPTIONAL_STR, OPTIONAL_STR)
_WAIT = (bytes, str, list, int, OPTIONAL_INT)


class DelegationRow(NamedTuple):
    """A child session: who delegated it, to which agent, by which offer, and at which checkpoint."""

    child: str
    session: str
    agent: str
    offer: bytes
    checkpoint: bytes | None
    at_us: int
    schema: str | None
    returns: str | None

    def write(self, tree: bytes) -> RowWrite:
        key = delegation_key(self.child, tree)
        fields = [head.session_key(self.session), head.session_key(self.agent), *self[3:]]
        return RowWrite(key, head.protect(key, ormsgpack.packb(fields)), ABSENT)

    @property
    def waiting_key(self) -> RowKey:
        return inbox.key_of(self.agent, self.offer, self.offer, inbox.WAITING)

    @property
    def done_key(self) -> RowKey:
        return inbox.key_of(self.agent, self.offer, self.offer, inbox.DONE)


def delegation_key(child: str, tree: bytes) -> RowKey:
    return RowKey(DELEGATION, head.session_key(child), tree)


def unpack_delegation(key: RowKey, row: Row) -> DelegationRow:
    session, agent, offer, *others = unpack_fields(key, row, _DELEGATION)
    if len(offer) != ID_BYTES:
        raise make_damage_error(key)
    child = unpack_name(key, key.key)
    return DelegationRow(child, unpack_name(key, session), unpack_name(key, agent), offer, *others)


class WaitRow(NamedTuple):
    """A wait that lasts: its session, its kind, what it waits for, since when, and until when at most."""

    session: str
    kind: str
    targets: tuple[str, ...]
    since_us: int
    until_us: int | None

    def pack(self, key: RowKey) -> bytes:
        names = [head.session_key(target) for target in self.targets]
        fields = [head.session_key(self.session), self.kind, names, self.since_us, self.until_us]
        return head.protect(key, ormsgpack.packb(fields))


def wait_key(session: str, place: str, tree: bytes) -> RowKey:
    """Return the key of the wait at a place of a session's program: a resume finds the same."""
    digest = hashlib.sha256(head.session_key(session) + b"\0" + head.session_key(place)).digest()
    return RowKey(WAIT, digest[:16], tree)


def unpack_wait(key: RowKey, row: Row) -> WaitRow:
    session, kind, names, since_us, until_us = unpack_fields(key, row, _WAIT)
    check_fields(key, names, (bytes,) * len(names))
    targets = tuple(unpack_name(key, name) for name in names)
    return WaitRow(unpack_name(key, session), kind, targets, since_us, until_us)
