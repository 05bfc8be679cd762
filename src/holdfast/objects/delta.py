"""Differences: a blob of a snapshot that is stored as what makes it out of another one, its base.

A difference has a key of its own, which follows from the hash of its content, and a base is always a blob that is stored
whole. So a difference never takes the place of a whole blob, no chain has more than one link, and there is no circle. Pure.
"""

from __future__ import annotations

import zstandard

from holdfast.errors import CorruptError
from holdfast.objects import frame

KIND = b"\x02"
HASH_BYTES = 32
LEAST_BYTES = 512  # a frame that has fewer is stored as it is: what would be spared is not worth the time
MOST_BYTES = 1 << 20
WORTH_IT = 2  # how many times as large the whole frame must be
_LEVEL = 3  # a quarter smaller than 1 with a base, and as fast
_COMPLEMENT = bytes(255 - byte for byte in range(256))


def key_of(hash_: bytes) -> bytes:
    """Where the difference is that makes the content of this hash: under the complement of it."""
    return hash_.translate(_COMPLEMENT)


def pack(content: bytes, base_hash: bytes, base: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(
        level=_LEVEL, dict_data=_dictionary(base), write_checksum=False, write_dict_id=False
    )
    return KIND + base_hash + compressor.compress(content)


def is_worth_it(difference: bytes, whole: bytes) -> bool:
    return WORTH_IT * len(difference) <= len(whole)


def base_of(hash_: bytes, difference: bytes) -> bytes:
    """The hash of the blob that the content of this hash is made from."""
    if difference[:1] != KIND or len(difference) <= 1 + HASH_BYTES:
        raise CorruptError(
            f"the blob {hash_.hex()[:16]}… of a snapshot is stored as a difference that is none: run `verify`"
        )
    return difference[1 : 1 + HASH_BYTES]


def unpack(difference: bytes, base: bytes) -> bytes:
    """The content. Its claimed size is checked before anything is inflated."""
    packed = memoryview(difference)[1 + HASH_BYTES :]
    try:
        size = zstandard.frame_content_size(packed)
        if not 0 <= size <= frame.MAX_CONTENT:
            raise CorruptError(f"a difference claims {size} bytes: the store is damaged. Run `verify`")
        content: bytes = zstandard.ZstdDecompressor(dict_data=_dictionary(base)).decompress(packed)
    except zstandard.ZstdError as error:
        raise CorruptError(f"a difference can't be read ({error}): the store is damaged. Run `verify`") from error
    return content


def _dictionary(base: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
