"""Frames: stored bytes that say whether they are compressed, with a limit on their inflated size."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import zstandard

from holdfast.errors import CorruptError, NewerVersionError

RAW, ZSTD = b"\x00", b"\x01"
MAX_CONTENT = 1 << 31
MAX_OF_SNAPSHOT = 1 << 24  # a node, a list of chunks, a file's content or a chunk of it
Inflater = zstandard.ZstdDecompressor
_LEVEL = 1  # twice as fast as 3 on what agents write, for a twentieth more bytes


def inflater() -> Inflater:
    """Return a decompressor for many frames. It must not be shared between threads."""
    return zstandard.ZstdDecompressor()


def frame_raw(content: bytes) -> bytes:
    return RAW + content


def deflater() -> zstandard.ZstdCompressor:
    """Return a compressor for many frames. It must not be shared between threads."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False)


def compress(content: bytes, deflate: zstandard.ZstdCompressor | None = None) -> bytes:
    """Return the content as zstd, or raw if zstd is not smaller."""
    packed: bytes = (deflate or deflater()).compress(content)
    return ZSTD + packed if len(packed) < len(content) else RAW + content


def compress_all(contents: Sequence[bytes], deflate: zstandard.ZstdCompressor) -> list[bytes]:
    """Return the same as `compressed` for each of them, in one call of the compressor if it has one.

    That is a tenth less work, and other threads run meanwhile.
    """
    if not any(contents) or not hasattr(deflate, "multi_compress_to_buffer"):  # as for zstandard's backend in Python
        return [compress(content, deflate) for content in contents]
    packed = deflate.multi_compress_to_buffer([*contents])
    parts = map(packed.__getitem__, range(len(packed)))
    return [
        b"".join((ZSTD, part)) if len(part) < len(content) else RAW + content  # type: ignore[arg-type]  # a buffer
        for content, part in zip(contents, parts, strict=True)
    ]


def content(frame: bytes, inflate: Inflater | None = None, *, limit: int = MAX_CONTENT) -> bytes:
    """Return the content of a frame. Its claimed size is checked before anything is inflated."""
    kind = frame[:1]
    if kind == RAW:
        return frame[1:]
    if kind == ZSTD:
        packed = memoryview(frame)[1:]
        try:
            size = zstandard.frame_content_size(packed)
            if not 0 <= size <= limit:
                raise CorruptError(f"a compressed frame claims {size} bytes: the store is damaged. Run `verify`")
            inflated: bytes = (inflate or inflater()).decompress(packed)
        except zstandard.ZstdError as error:
            raise CorruptError(
                f"a compressed frame can't be read ({error}): the store is damaged. Run `verify`"
            ) from error
        return inflated
    if not kind:
        raise CorruptError("a stored frame is empty: the store is damaged. Run `verify`")
    raise NewerVersionError(f"a frame of kind {kind[0]} was written by a newer holdfast. Upgrade to read it")


def unframe(hash_: bytes, framed: bytes, inflate: Inflater) -> bytes:
    """Return the content of a blob of a snapshot. Raise `CorruptError` if it has another hash."""
    inflated = content(framed, inflate, limit=MAX_OF_SNAPSHOT)
    if hashlib.sha256(inflated).digest() != hash_:
        raise CorruptError(f"the blob {hash_.hex()[:16]}… of a snapshot is damaged: run `verify`")
    return inflated
