"""Copies of files on the same disk: a reflink where the file system can, else a copy in the kernel."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Protocol

from holdfast.model.snapshot import FileEntry
from holdfast.workspace import dirfd
from holdfast.workspace.restore.apply import READABLE, StatKey
from holdfast.workspace.snapshot.read_file import data_from

FICLONE = 0x40049409
CAN_NOT = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.ENOTTY, errno.EPERM, errno.ETXTBSY)


class CopyCandidates(Protocol):
    """The stats of inodes when they were read, and their contents."""

    def get(self, path: bytes, /) -> StatKey | None: ...

    def content(self, path: bytes, /) -> bytes | None: ...


class CopySources:
    """Files below a root with known content, valid while their inodes look as when it was read."""

    def __init__(self, root: int, seen: CopyCandidates) -> None:
        self._root = root
        self._seen = seen
        self.copied = 0

    def has(self, entry: FileEntry) -> bool:
        return entry.size > 0 and self._seen.content(entry.path) == entry.content

    def copy_into(self, entry: FileEntry, descriptor: int) -> bool:
        """Copy the content of an entry into an empty file.

        Return False if the source has changed meanwhile, or can't be copied.
        """
        try:
            with dirfd.parent_of(self._root, entry.path) as (directory, name):
                source = os.open(name, READABLE, dir_fd=directory)
        except OSError:
            return False
        try:
            expected = self._seen.get(entry.path)
            if expected is None or self._key(source) != expected:
                return False
            if not (_clone_file(source, descriptor) or _copy_extents(source, descriptor, entry.size)):
                return False
            if self._key(source) != expected:
                return False
        finally:
            os.close(source)
        self.copied += 1
        return True

    @staticmethod
    def _key(descriptor: int) -> StatKey:
        info = os.fstat(descriptor)
        return info.st_ctime_ns, info.st_size, info.st_ino, info.st_mode


def _clone_file(source: int, target: int) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.ioctl(target, FICLONE, source)
        return True
    return False


def _copy_extents(source: int, target: int, size: int) -> bool:
    """Copy the written extents of a file; its holes stay holes."""
    if not hasattr(os, "copy_file_range"):
        return False
    copied, at = 0, data_from(source, 0, size)
    while at < size:
        end = _data_until(source, at, size)
        while at < end:
            try:
                more = os.copy_file_range(source, target, end - at, at, at)
            except OSError as error:
                if copied == 0 and error.errno in CAN_NOT:
                    return False
                raise
            if not more:
                return False
            at += more
            copied += more
        at = data_from(source, at, size)
    return True


def _data_until(descriptor: int, at: int, size: int) -> int:
    """Return where the data that begins at that place ends."""
    try:
        return min(os.lseek(descriptor, at, os.SEEK_HOLE), size)
    except (OSError, AttributeError):  # a system, or a file system, that can't tell
        return size
