"""The look at what did not change, which is what a walk mostly does: one `stat` for each directory and each file that is known.

A directory without others in it is not even opened: its files are asked for by way of the one above it. Should it be
swapped for a link meanwhile, the stats are of other inodes, and don't match; nothing is read here but single files of which
everything matches.
"""

from __future__ import annotations

import hashlib
import os
import stat

from holdfast.model.workspace import WHOLE_BYTES
from holdfast.workspace import ignore
from holdfast.workspace.guards import FILE_FLAGS
from holdfast.workspace.statcache import Directory, File


def is_plain(known: Directory) -> bool:
    """Whether nothing in the directory itself decides what is left out of it."""
    return not known.excluded and not any(name in known.files for name in ignore.FILES)


def is_same_directory(now: os.stat_result, known: Directory) -> bool:
    return now.st_ctime_ns == known.ctime_ns and now.st_ino == known.inode and now.st_mode == known.mode


def is_unchanged_below(above: int, name: bytes, known: Directory) -> bool:
    """Whether a directory in the one of the descriptor, and all files in it, are as they were."""
    try:
        now = os.stat(name, dir_fd=above, follow_symlinks=False)
    except OSError:
        return False
    return is_same_directory(now, known) and are_unchanged(above, name + b"/", known.files)


def are_unchanged(descriptor: int, base: bytes, files: dict[bytes, File]) -> bool:
    """Whether all these files, by their names after `base`, are as they were."""
    lstat = os.stat
    for name, (ctime_ns, size, inode, mode, _) in files.items():
        try:
            now = lstat(base + name, dir_fd=descriptor, follow_symlinks=False)
        except OSError:
            return False
        if now.st_ctime_ns != ctime_ns or now.st_size != size or now.st_ino != inode or now.st_mode != mode:
            return False
    return True


def is_as_read(descriptor: int, name: bytes, known: File) -> bool:
    """Whether a small file that looks as it did has the content that it had. What can't be told counts as yes."""
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
        return True  # it is changing: the next look sees that
    return hashlib.sha256(data).digest() == known.content
