"""The look at what did not change, which is what a walk mostly does: one `stat` for each directory and each file that is known.

Directories are only passed through for it, by paths below the root. Should one be swapped for a link meanwhile, the stats are
of other inodes, and don't match; nothing is read by way of these paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.workspace.guards import DIRECTORY_FLAGS, NO_FOLLOW
from holdfast.workspace.statcache import Directory, StatCache
from holdfast.workspace.vantages import HERE, Vantage

if TYPE_CHECKING:
    from holdfast.workspace.columns import Columns, Statx

_PASSING = DIRECTORY_FLAGS | NO_FOLLOW | getattr(os, "O_PATH", 0)


def differing(root: int, cache: StatCache, every: Callable[[], None]) -> list[bytes]:
    """Those of the known directories below the root's descriptor that are to be looked at more closely: they, or files in
    them, are not as they were, or what is in them decides about what is left out. `every` is called now and then.

    What a process looks at again it looks at with fewer steps (`columns.py`). (Two threads take longer than one, handing the GIL
    over.)"""
    vantages = cache.vantages()
    found = list(vantages.deciding)
    statx = _statx(root) if vantages.were_used else None
    vantages.were_used = True
    for vantage in vantages:
        every()
        try:
            descriptor = os.open(vantage.path or HERE, _PASSING, dir_fd=root)
        except OSError:
            found += map(vantage.whole, vantage.known)
            continue
        try:
            unlike = (
                _unlike(descriptor, vantage.known) if statx is None else statx.unlike(descriptor, _columns(vantage))
            )
        finally:
            os.close(descriptor)
        found += map(vantage.whole, unlike)
    return found


def _statx(root: int) -> Statx | None:
    from holdfast.workspace.columns import Statx

    return Statx.here(root)


def _columns(vantage: Vantage) -> Columns:
    from holdfast.workspace.columns import columns

    if vantage.columns is None:
        vantage.columns = columns(vantage.known)
    return vantage.columns


def _unlike(descriptor: int, known: Mapping[bytes, Directory]) -> list[bytes]:
    """Those of these directories, of which the paths are from the descriptor, that are not as they were, or of which a file is not.
    One loop without calls of our own: with two or three for each directory it took an eighth longer."""
    lstat, found = os.lstat, []
    for path, directory in known.items():
        try:
            now = lstat(path, dir_fd=descriptor)
            if now.st_ctime_ns != directory.ctime_ns or now.st_ino != directory.inode or now.st_mode != directory.mode:
                found.append(path)
                continue
            base = b"" if path == HERE else path + b"/"
            for name, (ctime_ns, size, inode, mode, _) in directory.files.items():
                now = lstat(base + name, dir_fd=descriptor)
                if now.st_ctime_ns != ctime_ns or now.st_size != size or now.st_ino != inode or now.st_mode != mode:
                    found.append(path)
                    break
        except OSError:
            found.append(path)
    return found
