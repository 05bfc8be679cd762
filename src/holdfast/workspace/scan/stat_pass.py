"""Comparison of the stat cache with the disk: a `stat` for each name, and a sample of files reread.

Directories are only passed through for the stats. If one is swapped for a link meanwhile, it can't
be opened, or the stats are of other inodes and don't match; nothing is read through these paths.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable

from holdfast.model.snapshot import WHOLE_BYTES
from holdfast.workspace.limits import DIRECTORY_FLAGS, FILE_FLAGS, NO_FOLLOW
from holdfast.workspace.scan.stat_cache import CachedDirectory, File, StatCache

SAMPLED = (
    1009  # one unchanged file in so many is read at each scan, others each time: silent changes are found by and by
)

_PASS_THROUGH = DIRECTORY_FLAGS | NO_FOLLOW | getattr(os, "O_PATH", 0)


def changed_directories(root: int, cache: StatCache, check: Callable[[], None]) -> list[bytes]:
    """Return the cached directories below the root that differ, or that hold ignore rules.

    `check` is called between directories and may raise. One thread does it: two hand the GIL to
    each other and take longer.
    """
    found = []
    for path, directory in cache.directories.items():
        if not path:
            continue
        check()
        if not directory.is_plain or _differs(root, path, directory):
            found.append(path)
    return found


def _differs(root: int, path: bytes, directory: CachedDirectory) -> bool:
    """Return whether a directory or one of its files is not as it was cached."""
    try:
        descriptor = os.open(path, _PASS_THROUGH, dir_fd=root)
    except OSError:
        return True
    try:
        now = os.fstat(descriptor)
        if now.st_ctime_ns != directory.ctime_ns or now.st_ino != directory.inode or now.st_mode != directory.mode:
            return True
        stat_of = os.stat
        for name, (ctime_ns, size, inode, mode, _) in directory.files.items():
            now = stat_of(name, dir_fd=descriptor, follow_symlinks=False)
            if now.st_ctime_ns != ctime_ns or now.st_size != size or now.st_ino != inode or now.st_mode != mode:
                return True
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def choose_samples(cache: StatCache) -> dict[bytes, list[bytes]]:
    """Return the names of files to read at this scan, by their directories: others after each snapshot."""
    found: dict[bytes, list[bytes]] = {}
    if cache.checkpoint is None:
        return found
    until = int.from_bytes(cache.checkpoint[-4:], "big") % SAMPLED  # files from here to the next one
    for path, known in cache.directories.items():
        count = len(known.files)
        if until < count:
            found[path] = list(known.files)[until::SAMPLED]
            until += len(found[path]) * SAMPLED
        until -= count
    return found


def changed_samples(descriptor: int, known: CachedDirectory, names: list[bytes]) -> list[bytes]:
    """Return those of these files that have other bytes."""
    return [name for name in names if not _is_unchanged(descriptor, name, known.files[name])]


def _is_unchanged(descriptor: int, name: bytes, known: File) -> bool:
    """Return whether a small file with equal stats still has its content. Unknown counts as yes."""
    if not stat.S_ISREG(known.mode) or known.size > WHOLE_BYTES:
        return True
    try:
        opened = os.open(name, FILE_FLAGS, dir_fd=descriptor)
    except OSError:
        return True
    try:
        data = os.read(opened, WHOLE_BYTES + 1)
        now = os.fstat(opened)
    except OSError:
        return True
    finally:
        os.close(opened)
    if (now.st_ctime_ns, now.st_size, now.st_ino) != (known.ctime_ns, known.size, known.inode) or len(
        data
    ) != known.size:
        return True  # it is changing: the next scan sees that
    return hashlib.sha256(data).digest() == known.content
