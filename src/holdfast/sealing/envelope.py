"""The envelope of sealed bytes: AES-256-GCM, bound to store, tenant, kind and place.

    record      "HF" kind 10   suite kid nonce ciphertext tag   CRC-32
    others      10             suite kid nonce ciphertext tag   CRC-32

The plaintext is the clear name (its length as LEB128, then the name), the content, a byte 01 and zeros
up to a padded size (Padmé). The name is that of a record's session or of a row's key; segments and
blobs have none. The associated data names the place that the reader asked for: so bytes that were
moved don't open. docs/format.md has the table, and test vectors.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from holdfast.backends.port import Segment
from holdfast.errors import CorruptError, NewerVersionError, PlaintextError, TamperedError
from holdfast.sealing.cipher import NONCE_BYTES, TAG_BYTES, decrypt

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SUITE = b"\x01"  # AES-256-GCM with a random nonce
MAGIC = b"\x10"  # of everything but records
RECORD_MAGIC, RECORD_VERSION = b"HF", b"\x10"
NO_PLACE = b""  # of what a forger gave numbers that no writer gives: nothing was sealed for it
NO_KIND = b"\xff"  # of a record that does not begin as one
KID_BYTES = 8
MAX_SHORT_NAME = 128  # with its length
_RECORD_HEAD, _OTHER_HEAD = 4, 1
_HEAD, _RECORD_HEAD_END = MAGIC + SUITE, RECORD_VERSION + SUITE
_LENGTHS = [bytes((length,)) for length in range(128)]
_OVERHEAD = 1 + KID_BYTES + NONCE_BYTES + TAG_BYTES + 4
RECORD, SEGMENT, BLOB, ROW, TREE_KEY = b"R", b"U", b"B", b"W", b"K"


class SealScope(NamedTuple):
    """What all bytes of a store are bound to: the store, and the tenant (zeros: there is only one)."""

    store: bytes
    tenant: bytes = bytes(16)

    @property
    def prefix(self) -> bytes:
        return b"holdfast seal 1\0" + self.store + self.tenant


# -- places ------------------------------------------------------------------------------------------------------------


def record_place(id_: bytes, session: bytes, sequence: int) -> bytes:
    """Return the place of a record; `session` is the hidden name."""
    try:
        return b"%c%b%c%b%b" % (len(id_), id_, len(session), session, sequence.to_bytes(8, "big"))
    except OverflowError:
        return NO_PLACE


def segment_place(log: int, first: int, length: int) -> bytes:
    """Return the place of a segment: its log, its first element, and the number of its elements."""
    try:
        return _numbers(log, first, length)
    except struct.error:
        return NO_PLACE


_numbers = struct.Struct(">QQQ").pack
_bounds = struct.Struct(">QQ").pack  # the last two


def row_place(space: str, key: bytes, tree: bytes) -> bytes:
    """Return the place of a row; key and tree are hidden names."""
    return b"%c%b%c%b%b" % (len(space), space.encode(), len(tree), tree, key)


# -- sealing -----------------------------------------------------------------------------------------------------------


def seal(
    cipher: AESGCM, kid: bytes, nonce: bytes, scope_and_letter: bytes, place: bytes, name: bytes, content: bytes,
    clear: bytes = b"",
) -> bytes:  # fmt: skip
    """Return the envelope of an item. That of a record begins with its `clear_head`."""
    length = len(name)
    plain = b"".join((_LENGTHS[length] if length < 128 else leb128(length), name, content, b"\x01"))
    padded = plain.ljust(padded_size(len(plain)), b"\0")
    bound_to = b"".join((scope_and_letter, SUITE, kid, clear, place))
    sealed = b"".join((clear or MAGIC, SUITE, kid, nonce, cipher.encrypt(nonce, padded, bound_to)))
    return sealed + zlib.crc32(sealed).to_bytes(4, "big")


def clear_head(content: bytes) -> bytes:
    """Return the first bytes of the envelope of a record.

    Its kind stays clear: commits have conditions on it.
    """
    kind = content[2:3] if content[:2] == RECORD_MAGIC and len(content) > 2 else NO_KIND
    return RECORD_MAGIC + kind + RECORD_VERSION


def is_clear_head(prefix: bytes) -> bool:
    """Return whether a record begins with these bytes if, and only if, its envelope does."""
    return len(prefix) == len(RECORD_MAGIC) + 1 and prefix[:2] == RECORD_MAGIC and prefix[2:] != NO_KIND


@lru_cache(maxsize=4096)  # most items have a few hundred bytes
def padded_size(size: int) -> int:
    """Return the size that a plaintext is padded to: Padmé, at most 12 % more."""
    exponent = size.bit_length() - 1
    free = exponent - exponent.bit_length()
    if free <= 0:
        return size
    mask = (1 << free) - 1
    return (size + mask) & ~mask


def leb128(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


# -- opening -----------------------------------------------------------------------------------------------------------


def kid(data: bytes) -> bytes | None:
    """Return the id of the key of a segment, a blob or a row, unchecked; None if it is no envelope."""
    return data[2:10] if data[:2] == MAGIC + SUITE else None


def record_kid(data: bytes) -> bytes | None:
    """Return the id of the key of a record, unchecked; None if it is no envelope."""
    return data[5:13] if data[:2] == RECORD_MAGIC and data[3:5] == RECORD_VERSION + SUITE else None


def kid_of(data: bytes, subject: str) -> bytes:
    """Return the id of the key that a segment, a blob or a row is sealed under. Check the envelope."""
    return _check(data, _OTHER_HEAD, data[:1] == MAGIC, subject)


def kid_of_record(data: bytes, subject: str) -> bytes:
    """Return the id of the key that a record is sealed under. Check the envelope."""
    is_sealed = data[:2] == RECORD_MAGIC and data[3:4] == RECORD_VERSION
    return _check(data, _RECORD_HEAD, is_sealed, subject)


def _check(data: bytes, head: int, is_sealed: bool, subject: str) -> bytes:
    if not is_sealed:
        raise PlaintextError(
            f"{subject} is not sealed, and this store is: another program wrote it. It is refused. Run `holdfast "
            "verify`"
        )
    if len(data) < head + _OVERHEAD or zlib.crc32(memoryview(data)[:-4]) != int.from_bytes(data[-4:], "big"):
        raise CorruptError(f"{subject} is damaged: its CRC does not match. Run `holdfast verify`")
    if data[head : head + 1] != SUITE:
        raise NewerVersionError(f"{subject} is sealed in a way that this holdfast does not know or does not allow")
    return data[head + 1 : head + 1 + KID_BYTES]


def try_open(
    ciphers: Mapping[bytes, AESGCM], scope_and_letter: bytes, place: bytes, data: bytes
) -> tuple[bytes, bytes] | None:
    """Return the clear name and the content of a segment or a row; None if it can't be opened so.

    Then the checks tell why: they are left out here, as the tag covers everything that they do.
    """
    cipher = ciphers.get(data[2:10])
    if cipher is None or data[:2] != _HEAD:
        return None
    try:
        plain = cipher.decrypt(data[10:22], data[22:-4], scope_and_letter + data[1:10] + place)
    except Exception:
        return None
    start = plain[0] + 1
    return (plain[1:start], plain[start : plain.rfind(b"\x01")]) if start <= MAX_SHORT_NAME else None


def try_open_segments(
    ciphers: Mapping[bytes, AESGCM], scope_and_letter: bytes, log: int, found: Iterable[Segment]
) -> list[Segment] | None:
    """Do the same for segments of a log: there are many small ones, so nothing is put together twice."""
    head, bound_to = b"", b""
    opened = []
    try:
        for first, length, data in found:
            if data[:10] != head:
                head = data[:10]
                if head[:2] != _HEAD:
                    return None
                decrypt_segment = ciphers[head[2:]].decrypt
                bound_to = scope_and_letter + head[1:] + log.to_bytes(8, "big")
            plain = decrypt_segment(data[10:22], data[22:-4], bound_to + _bounds(first, length))
            opened.append(Segment(first, length, plain[1 : plain.rfind(1)]))  # no name stands before its content
    except Exception:
        return None
    return opened


def try_open_record(
    ciphers: Mapping[bytes, AESGCM], scope_and_letter: bytes, place: bytes, data: bytes
) -> tuple[bytes, bytes] | None:
    """Do the same for a record."""
    cipher = ciphers.get(data[5:13])
    if cipher is None or data[:2] != RECORD_MAGIC or data[3:5] != _RECORD_HEAD_END:
        return None
    try:
        plain = cipher.decrypt(data[13:25], data[25:-4], scope_and_letter + data[4:13] + data[:4] + place)
    except Exception:
        return None
    start = plain[0] + 1
    return (plain[1:start], plain[start : plain.rfind(b"\x01")]) if start <= MAX_SHORT_NAME else None


def unseal(cipher: AESGCM, scope_and_letter: bytes, place: bytes, data: bytes, subject: str) -> tuple[bytes, bytes]:
    """Return the clear name and the content of a segment, a blob or a row whose envelope was checked."""
    return _open(cipher, scope_and_letter + data[_OTHER_HEAD:10] + place, data, _OTHER_HEAD, subject)


def unseal_record(
    cipher: AESGCM, scope_and_letter: bytes, place: bytes, data: bytes, subject: str
) -> tuple[bytes, bytes]:
    """Return the session and the content of a record whose envelope was checked."""
    bound_to = scope_and_letter + data[_RECORD_HEAD:13] + data[:_RECORD_HEAD] + place
    name, content = _open(cipher, bound_to, data, _RECORD_HEAD, subject)
    if clear_head(content) != data[:_RECORD_HEAD]:
        raise tampered_error(subject)
    return name, content


def _open(cipher: AESGCM, bound_to: bytes, data: bytes, head: int, subject: str) -> tuple[bytes, bytes]:
    start = head + 1 + KID_BYTES
    plain = decrypt(cipher, data[start : start + NONCE_BYTES], data[start + NONCE_BYTES : -4], bound_to)
    if plain is None:
        raise tampered_error(subject)
    length, at = plain[0], 1
    if length > 127:
        length, shift = length & 127, 7
        while True:
            byte = plain[at]
            length |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                break
    return plain[at : at + length], plain[at + length : plain.rfind(b"\x01")]


def tampered_error(subject: str) -> TamperedError:
    return TamperedError(
        f"{subject} was not written by a holder of the key in this place: it was forged, or moved from another place "
        "or store. It is refused. Run `holdfast verify` to see what else is concerned"
    )
