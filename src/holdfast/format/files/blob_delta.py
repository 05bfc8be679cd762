"""Deltas: blobs of a snapshot that are stored as differences from another blob, their base.

A delta has a key of its own, which follows from the hash of its content, and a base is always a
blob that is stored whole. So a delta never replaces a whole blob, no chain has more than one link,
and there is no cycle. Pure.

There are two kinds. Most changes are a few bytes in one place, such as a hash in a node of a tree:
these bytes are stored with their position (`INSERTED`). All others are compressed with the base as
a dictionary (`COMPRESSED`), which takes at least three times as long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import zstandard

from holdfast.errors import CorruptError
from holdfast.format import frame

COMPRESSED, INSERTED = b"\x02", b"\x03"
HASH_BYTES = 32
FEW_BYTES = 128  # in one place: compression would hardly make them fewer
LEAST_BYTES = 512  # a smaller frame is stored whole: the savings are not worth the time
MOST_BYTES = 1 << 20
WORTH_IT = 2  # how many times as large the whole frame must be
# How many times as large the content must be. Names and hashes compress less than 6:1; where a
# file compresses more, little is lost.
SURELY_WORTH_IT = 12
_LEVEL = 3  # a quarter smaller than 1 with a base, and as fast
_PLACE = struct.Struct("<II")  # how many bytes of the base come before, how many after
_COMPLEMENT = bytes(255 - byte for byte in range(256))


def key_of(hash_: bytes) -> bytes:
    """Return the key of the delta that makes the content of this hash: the complement of the hash."""
    return hash_.translate(_COMPLEMENT)


def pack(content: bytes, base_hash: bytes, base: bytes) -> bytes:
    start, end = _measure_common_ends(content, base)
    if len(content) - start - end <= FEW_BYTES:
        return b"".join((INSERTED, base_hash, _PLACE.pack(start, end), content[start : len(content) - end]))
    compressor = zstandard.ZstdCompressor(
        level=_LEVEL, dict_data=_dictionary(base), write_checksum=False, write_dict_id=False
    )
    return COMPRESSED + base_hash + compressor.compress(content)


def _measure_common_ends(content: bytes, base: bytes) -> tuple[int, int]:
    """Return how many bytes of the base both begin with, and how many more of it both end with."""
    most = min(len(content), len(base))
    start = _count_equal(most, lambda first, end: content[first:end] == base[first:end])
    size, base_size = len(content), len(base)
    end = _count_equal(
        most - start, lambda first, end: content[size - end : size - first] == base[base_size - end : base_size - first]
    )
    return start, end


def _count_equal(most: int, is_equal: Callable[[int, int], bool]) -> int:
    """Return how many are equal before the first that is not, by bisection."""
    known = 0
    while known < most:
        middle = (known + most + 1) // 2
        if is_equal(known, middle):
            known = middle
        else:
            most = middle - 1
    return known


def is_worth_it(difference: bytes, whole: bytes) -> bool:
    """Return whether the delta is small enough, compared with the whole frame."""
    return max(LEAST_BYTES, WORTH_IT * len(difference)) <= len(whole)


def is_surely_worth_it(difference: bytes, content: bytes) -> bool:
    """Return whether the delta is small enough, judged by the content alone, without making its frame."""
    return SURELY_WORTH_IT * len(difference) <= len(content)


def is_difference(data: bytes) -> bool:
    return data[:1] in (COMPRESSED, INSERTED)


def base_of(hash_: bytes, difference: bytes) -> bytes:
    """Return the hash of the blob that the content of this hash is made from."""
    if not is_difference(difference) or len(difference) <= 1 + HASH_BYTES:
        raise CorruptError(
            f"the blob {hash_.hex()[:16]}… of a snapshot is stored as a difference that is none: run `verify`"
        )
    return difference[1 : 1 + HASH_BYTES]


def unpack(difference: bytes, base: bytes) -> bytes:
    """Return the content. Its claimed size is checked before anything is inflated."""
    if difference[:1] == INSERTED:
        return _insert(difference, base)
    packed = memoryview(difference)[1 + HASH_BYTES :]
    try:
        size = zstandard.frame_content_size(packed)
        if not 0 <= size <= frame.MAX_OF_SNAPSHOT:
            raise CorruptError(f"a difference claims {size} bytes: the store is damaged. Run `verify`")
        content: bytes = zstandard.ZstdDecompressor(dict_data=_dictionary(base)).decompress(packed)
    except zstandard.ZstdError as error:
        raise CorruptError(f"a difference can't be read ({error}): the store is damaged. Run `verify`") from error
    return content


def _insert(difference: bytes, base: bytes) -> bytes:
    try:
        start, end = _PLACE.unpack_from(difference, 1 + HASH_BYTES)
    except struct.error as error:
        raise CorruptError("a difference is cut short: the store is damaged. Run `verify`") from error
    if start + end > len(base):
        raise CorruptError("a difference is of a longer base: the store is damaged. Run `verify`")
    return b"".join((base[:start], difference[1 + HASH_BYTES + _PLACE.size :], base[len(base) - end :]))


def _dictionary(base: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
