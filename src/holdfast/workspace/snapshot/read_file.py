"""Consistent reads of files, large ones cut into chunks."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.format.files import snapshot as objects
from holdfast.model.snapshot import CHUNK_BYTES, EMPTY_CONTENT, WHOLE_BYTES
from holdfast.workspace.limits import DIRECTORY_FLAGS, FILE_FLAGS, NO_FOLLOW
from holdfast.workspace.snapshot.compress import Contents

ATTEMPTS = 3
FEW = 32


class Read(NamedTuple):
    """A file that was read; `stat` is its stat then, `is_torn` says that it kept changing."""

    content: bytes
    blobs: Contents  # that are to be stored
    stat: os.stat_result
    is_torn: bool
    chunks: bytes | None = None  # the list of chunks of a large file


class KindChange(Exception):  # noqa: N818 - a signal within this package
    """A signal: the path is no longer a regular file."""


class ContentReader:
    """The reader of files, which skips blobs that the store has or that it gave before.

    Finding out what the store has takes a pass over the whole cache: a few small files are given
    without asking.
    """

    def __init__(self, stored: Callable[[], Container[bytes]]) -> None:
        self._stored = stored
        self._known: Container[bytes] | None = None
        self._given: set[bytes] = set()
        self._asked = 0

    def read_new(self, name: bytes, directory: int) -> tuple[bytes, bytes, os.stat_result] | None:
        """Read a small file that is not cached: return its content, the part to store, and its stat.

        Return None if it is no such file, or changed meanwhile: `read` is for these. It takes as
        few steps as possible: a first scan calls it 100,000 times.
        """
        descriptor = os.open(name, FILE_FLAGS, dir_fd=directory)
        try:
            before = os.fstat(descriptor)
            size = before.st_size
            if size > WHOLE_BYTES or not stat.S_ISREG(before.st_mode):
                return None
            data = os.pread(descriptor, size, 0)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if len(data) != size or not _is_same(before, after):
            return None
        if not data:
            return EMPTY_CONTENT, b"", before
        content = hashlib.sha256(data).digest()
        if not self._is_new(content, small=True):
            return content, b"", before
        self._given.add(content)
        return content, data, before

    def read(self, name: bytes, directory: int, had: bytes | None) -> Iterator[Contents | Read]:
        """Read a file of a directory: yield the blobs of a large one as they come, and its entry last.

        A file that changes while it is read is read again, a few times. `had` is its cached
        content, which the store has.
        """
        for attempt in range(ATTEMPTS):
            is_last = attempt == ATTEMPTS - 1
            listed: bytes | None = None
            descriptor = os.open(name, FILE_FLAGS, dir_fd=directory)
            try:
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    raise KindChange
                if before.st_size <= WHOLE_BYTES:
                    data = _read_whole(descriptor, before.st_size)
                    content, size = hashlib.sha256(data).digest() if data else EMPTY_CONTENT, len(data)
                    blobs = {content: data} if data and content != had and self._is_new(content, small=True) else {}
                else:
                    chunks: list[objects.Chunk] = []
                    for chunk, blob in self._chunks(descriptor, before.st_size):
                        chunks.append(chunk)
                        if blob is not None:
                            yield blob
                    size = sum(chunk.size for chunk in chunks)
                    listed = objects.pack_chunks(chunks)
                    content = hashlib.sha256(listed).digest()
                    blobs = {content: listed} if self._is_new(content) else {}
                after = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            is_whole = size == before.st_size and _is_same(before, after)
            # A read of a changing file is kept at the end if it is consistent in itself: its size
            # is.
            if is_whole or (is_last and size == before.st_size):
                self._given.update(blobs)
                yield Read(content, blobs, before, is_torn=not is_whole, chunks=listed)
                return
        raise KindChange

    def _is_new(self, hash_: bytes, *, small: bool = False) -> bool:
        if hash_ in self._given:
            return False
        self._asked += 1
        if self._known is None and small and self._asked <= FEW:
            return True
        if self._known is None:
            self._known = self._stored()
        return hash_ not in self._known

    def _chunks(self, descriptor: int, size: int) -> Iterator[tuple[objects.Chunk, Contents | None]]:
        """Chunks of a fixed size. Zeros are a hole, whether the file system knows it as one or not."""
        at = 0
        while at < size:
            hole_end = data_from(descriptor, at, size)
            hole = (hole_end - at) // CHUNK_BYTES * CHUNK_BYTES if hole_end < size else size - at
            if hole:
                yield objects.Chunk(hole, objects.HOLE), None
                at += hole
                continue
            data = _read_whole(descriptor, min(CHUNK_BYTES, size - at), at)
            if not data:
                return
            if not data.strip(b"\0"):
                yield objects.Chunk(len(data), objects.HOLE), None
            else:
                hash_ = hashlib.sha256(data).digest()
                new = {hash_: data} if self._is_new(hash_) else {}
                self._given.add(hash_)
                yield objects.Chunk(len(data), hash_), new or None
            at += len(data)


def data_from(descriptor: int, at: int, size: int) -> int:
    """Return where the hole that begins at a place of a file ends; the place itself if there is none."""
    if not hasattr(os, "SEEK_DATA"):
        return at
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        import errno

        return size if error.errno == errno.ENXIO else at  # no more data, or a file system that can't tell


def _read_whole(descriptor: int, size: int, at: int = 0) -> bytes:
    """Read so many bytes, or fewer if the file ends before."""
    data = os.pread(descriptor, size, at) if size else b""
    while 0 < len(data) < size:
        more = os.pread(descriptor, size - len(data), at + len(data))
        if not more:
            break
        data += more
    return data


def _is_same(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_ctime_ns, before.st_size, before.st_mtime_ns) == (
        after.st_ctime_ns,
        after.st_size,
        after.st_mtime_ns,
    )


def read_now(root: Path, path: bytes, limit: int) -> bytes | None:
    """Return a file below a directory, if it is one and has at most so many bytes. No symlink is followed."""
    directory = os.open(root, DIRECTORY_FLAGS)
    try:
        *above, name = path.split(b"/")
        for part in above:
            below = os.open(part, DIRECTORY_FLAGS | NO_FOLLOW, dir_fd=directory)
            os.close(directory)
            directory = below
        descriptor = os.open(name, FILE_FLAGS, dir_fd=directory)
    except OSError:
        return None
    finally:
        os.close(directory)
    with os.fdopen(descriptor, "rb") as file:
        seen = os.fstat(descriptor)
        return file.read(limit) if stat.S_ISREG(seen.st_mode) and seen.st_size <= limit else None
