"""The contents of files: fetched from the store, and compared with files on the disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from holdfast.format import frame
from holdfast.format.files import snapshot as objects
from holdfast.format.files.snapshot import Chunk
from holdfast.format.frame import unframe
from holdfast.model.snapshot import WHOLE_BYTES, FileEntry
from holdfast.operations import snapshot_read
from holdfast.operations.context import StoreContext

READ_BYTES = 1024 * 1024


class StoreSource:
    """Contents as the store has them, each checked against its hash."""

    def __init__(self, ctx: StoreContext) -> None:
        self._ctx = ctx

    async def read_whole(self, entries: Sequence[FileEntry]) -> Iterator[bytes]:
        wanted = list(dict.fromkeys(entry[4] for entry in entries if entry[3]))
        frames = dict(zip(wanted, await snapshot_read.frames_of(self._ctx, wanted), strict=True))
        return self._unpack(entries, frames)

    @staticmethod
    def _unpack(entries: Sequence[FileEntry], frames: Mapping[bytes, bytes]) -> Iterator[bytes]:
        """Unpack all contents when the first is requested.

        One by one, between system calls, unpacking takes half as long again.
        """
        inflate = frame.inflater()
        contents = {hash_: unframe(hash_, framed, inflate) for hash_, framed in frames.items()}
        yield from [contents[entry[4]] if entry[3] else b"" for entry in entries]

    async def pieces(self, entry: FileEntry) -> AsyncIterator[tuple[int, bytes | None]]:
        async for piece in snapshot_read.pieces(self._ctx, entry):
            yield piece.size, piece.data


class ContentComparison:
    """A comparison of files with the contents of entries; large files' chunks must be known before."""

    def __init__(self, chunks: dict[bytes, list[Chunk]]) -> None:
        self._chunks = chunks

    def __call__(self, descriptor: int, entry: FileEntry) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        if not entry.is_chunked:
            # One byte more, so that a file that is longer is seen.
            data = _read(descriptor, WHOLE_BYTES + 1)
            return len(data) == entry.size and hashlib.sha256(data).digest() == entry.content
        for size, hash_ in self._chunks[entry.content]:
            if not (_is_hole(descriptor, size) if hash_ == objects.HOLE else _is_chunk(descriptor, size, hash_)):
                return False
        return not os.read(descriptor, 1)


async def comparison(ctx: StoreContext, entries: Iterable[FileEntry | None]) -> ContentComparison:
    """Return a comparison with these entries."""
    lists = {
        entry.content for entry in entries if entry is not None and entry.size > WHOLE_BYTES and entry.kind == "file"
    }
    hashes = sorted(lists)
    read = await snapshot_read.objects_of(ctx, hashes)
    return ContentComparison({hash_: objects.unpack_chunks(data) for hash_, data in zip(hashes, read, strict=True)})


def _read(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    if len(data) in (0, size):
        return data
    parts = [data]
    left = size - len(data)
    while left and (data := os.read(descriptor, left)):
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _is_chunk(descriptor: int, size: int, hash_: bytes) -> bool:
    data = _read(descriptor, size)
    return len(data) == size and hashlib.sha256(data).digest() == hash_


def _is_hole(descriptor: int, size: int) -> bool:
    while size:
        data = _read(descriptor, min(size, READ_BYTES))
        if not data or data.count(0) != len(data):
            return False
        size -= len(data)
    return True
