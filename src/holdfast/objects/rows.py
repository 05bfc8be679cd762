"""The small rows: how their values are protected, and what the head of a session looks like.

A value is followed by a CRC-32 over its space, key and content: a flipped bit or two swapped rows are found when the
row is read, on every backend.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import STORE, Row, RowKey
from holdfast.errors import CorruptError

HEAD, SESSION, EXPIRED, LOGS = "head", "session", "expired", "logs"
NEXT_LOG = RowKey(LOGS, b"next", STORE)


def protect(key: RowKey, content: bytes) -> bytes:
    return content + _crc(key, content)


def content(key: RowKey, row: Row) -> bytes:
    """What was protected under this key, if nothing has changed it."""
    inner, crc = row.value[:-4], row.value[-4:]
    if crc != _crc(key, inner):
        raise CorruptError(f"the {key.space} row of {key.key[:60]!r} is damaged. Restore by checkpoint id still works")
    return inner


def _crc(key: RowKey, content: bytes) -> bytes:
    crc = zlib.crc32(content, zlib.crc32(key.key, zlib.crc32(key.space.encode())))
    return crc.to_bytes(4, "big")


def session_key(session_id: str) -> bytes:
    """A session id as a key: any text, lone surrogates included."""
    return session_id.encode("utf-8", "surrogatepass")


def session_name(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


class Head(NamedTuple):
    """Where a session stands. `checkpoint` is None when all of it has expired; `sequence` is the last one given out."""

    checkpoint: bytes | None
    sequence: int

    def pack(self, key: RowKey) -> bytes:
        return protect(key, ormsgpack.packb([self.checkpoint, self.sequence]))


def head_key(session: bytes, tree: bytes) -> RowKey:
    return RowKey(HEAD, session, tree)


def unpack_head(key: RowKey, row: Row) -> Head:
    return Head(*ormsgpack.unpackb(content(key, row)))
