"""Of what looks the same, one file in a thousand is read at each look, another one each time: what no time tells is found by and by."""

from __future__ import annotations

import hashlib
import os
import stat

from holdfast.model.workspace import WHOLE_BYTES
from holdfast.workspace.guards import FILE_FLAGS
from holdfast.workspace.statcache import Directory, File, StatCache

SAMPLED = 1009  # one file in so many


def sampled(cache: StatCache) -> dict[bytes, list[bytes]]:
    """The names of files to read at this look, by their directories: others after each snapshot."""
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


def unlike(descriptor: int, known: Directory, names: list[bytes]) -> list[bytes]:
    """Those of these files that have other bytes."""
    return [name for name in names if not _is_as_read(descriptor, name, known.files[name])]


def _is_as_read(descriptor: int, name: bytes, known: File) -> bool:
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
