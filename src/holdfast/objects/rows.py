"""The small rows: how their values are protected, and what the head of a session looks like.

A value is followed by a CRC-32 over its space, key and content: a flipped bit or two swapped rows are found when the
row is read, on every backend.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import STORE, Row, RowKey
from holdfast.errors import CorruptError
from holdfast.model.lease import Process

HEAD, SESSION, EXPIRED, LOGS, GRAVES = "head", "session", "expired", "logs", "graves"
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
    return zlib.crc32(content, key_crc(key)).to_bytes(4, "big")


def key_crc(key: RowKey) -> int:
    """The CRC of space and key, where that of a content goes on: for who protects one row again and again."""
    return zlib.crc32(key.key, _crc_of_space(key.space))


@lru_cache(maxsize=64)
def _crc_of_space(space: str) -> int:
    return zlib.crc32(space.encode())


def session_key(session_id: str) -> bytes:
    """A session id as a key: any text, lone surrogates included."""
    return session_id.encode("utf-8", "surrogatepass")


def session_name(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


class Lease(NamedTuple):
    """Who alone may write to a session, until when, and in which process the holder runs."""

    expires_at_us: int
    holder: bytes
    process: Process


class Head(NamedTuple):
    """Where a session stands. `checkpoint` is None when all of it has expired; `sequence` is the last one given out.

    The lease is part of it, since every save compares and sets the head's row: whoever takes a lease changes the row, and
    thereby refuses each commit that was made under the one before. `fence` is the token of the lease given out last; it
    stays when the lease goes, so that tokens rise.
    """

    checkpoint: bytes | None
    sequence: int
    fence: int = 0
    lease: Lease | None = None

    def pack(self, key: RowKey) -> bytes:
        return self.packed_after(key_crc(key))

    def packed_after(self, crc: int) -> bytes:
        """The same, given the CRC of the key."""
        checkpoint, sequence, fence, held = self
        if not fence:
            content = ormsgpack.packb([checkpoint, sequence])
        else:
            lease = None if held is None else [held.expires_at_us, held.holder, *held.process]
            content = ormsgpack.packb([checkpoint, sequence, fence, lease])
        return content + zlib.crc32(content, crc).to_bytes(4, "big")


def head_key(session: bytes, tree: bytes) -> RowKey:
    return RowKey(HEAD, session, tree)


def unpack_head(key: RowKey, row: Row) -> Head:
    checkpoint, sequence, *leased = ormsgpack.unpackb(content(key, row))
    if not leased:
        return Head(checkpoint, sequence)
    fence, lease = leased
    if lease is None:
        return Head(checkpoint, sequence, fence)
    expires_at_us, holder, *process = lease
    return Head(checkpoint, sequence, fence, Lease(expires_at_us, holder, Process(*process)))
