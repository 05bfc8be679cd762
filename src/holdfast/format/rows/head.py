"""The small rows: how their values are protected, and the head of a session.

A value is followed by a CRC-32 over its space, key and content: a flipped bit or two swapped rows
are detected when the row is read, on every backend.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import STORE, Row, RowKey, UnreadableBytes
from holdfast.errors import CorruptError
from holdfast.model.lease import Process

HEAD, SESSION, EXPIRED, LOGS, GRAVES = "head", "session", "expired", "logs", "graves"
NEXT_LOG = RowKey(LOGS, b"next", STORE)
CANCELLED = "cancelled"  # in the lease of a cancelled session, the place of the process: no process has it
END_OF_TIME_US = 253_402_300_799_000_000  # the last second of the year 9999


def protect(key: RowKey, content: bytes) -> bytes:
    return content + _crc(key, content)


def content(key: RowKey, row: Row) -> bytes:
    """Return the content that was protected under this key. Raise an error if it has changed."""
    inner, crc = row.value[:-4], row.value[-4:]
    if crc != _crc(key, inner):
        if isinstance(row.value, UnreadableBytes):
            raise row.value.error
        raise CorruptError(
            f"the {key.space} row of {format_key(key.key)} is damaged. Restore by checkpoint id still works"
        )
    return inner


def format_key(key: bytes) -> str:
    """Return a key as text, in hexadecimal if it is not text."""
    text = key.decode("utf-8", "replace")
    return repr(text[:60]) if text.isprintable() and "\ufffd" not in text else key[:30].hex()


def _crc(key: RowKey, content: bytes) -> bytes:
    return zlib.crc32(content, key_crc(key)).to_bytes(4, "big")


def key_crc(key: RowKey) -> int:
    """Return the CRC of space and key, to continue with a content: for many writes of one row."""
    return zlib.crc32(key.key, _crc_of_space(key.space))


@lru_cache(maxsize=64)
def _crc_of_space(space: str) -> int:
    return zlib.crc32(space.encode())


def session_key(session_id: str) -> bytes:
    """Return a session id as a key: any text, lone surrogates included."""
    return session_id.encode("utf-8", "surrogatepass")


def session_name(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


class Cancellation(NamedTuple):
    """The end of a session that a person or a program decided on."""

    by: str
    reason: str
    at_us: int


class LeaseRow(NamedTuple):
    """The exclusive writer of a session, the end of its lease, and the process of the holder.

    A cancelled session has a lease that never ends. So each writer is refused, those of an older
    holdfast included.
    """

    expires_at_us: int
    holder: bytes
    process: Process

    @classmethod
    def from_cancellation(cls, made: Cancellation) -> LeaseRow:
        """Return the lease that keeps all writers out. A name has no line break; the reason follows it."""
        return cls(END_OF_TIME_US, session_key(f"{made.by}\n{made.reason}"), Process(CANCELLED, 0, made.at_us))

    @property
    def cancellation(self) -> Cancellation | None:
        if self.process.place != CANCELLED:
            return None
        by, _, reason = session_name(self.holder).partition("\n")
        return Cancellation(by, reason, self.process.started)


class Head(NamedTuple):
    """The head of a session.

    `checkpoint` is None when all of them have expired; `sequence` is the last number given out.

    The lease is part of the head, since every save compares and sets the head's row. Acquiring a
    lease changes the row, and so refuses each commit made under the previous lease. `fence` is the
    token of the last lease; it stays after the lease ends, so that tokens rise.
    """

    checkpoint: bytes | None
    sequence: int
    fence: int = 0
    lease: LeaseRow | None = None

    def pack(self, key: RowKey) -> bytes:
        return self.packed_after(key_crc(key))

    def packed_after(self, crc: int) -> bytes:
        """Return the packed head, given the CRC of the key."""
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
    return Head(checkpoint, sequence, fence, LeaseRow(expires_at_us, holder, Process(*process)))
