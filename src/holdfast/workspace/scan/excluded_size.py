"""Sizes of left-out paths: counted on request, since they may exceed the snapshot itself."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from holdfast.model.snapshot import ExcludedPath, LeftOut, SkippedPath


def measure(root: bytes, paths: Iterable[ExcludedPath | SkippedPath]) -> list[LeftOut]:
    """Return the sizes of these paths, the largest first. Unreadable ones count zero; follow no link."""
    found = [LeftOut(path, why, *_size(root + b"/" + path)) for path, why in paths]
    return sorted(found, key=lambda left_out: (-left_out.size, left_out.path))


def _size(path: bytes) -> tuple[int, int]:
    """Return files and bytes at a path and below it."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0, 0
    if not stat.S_ISDIR(status.st_mode):
        return 1, status.st_size if stat.S_ISREG(status.st_mode) else 0
    files = size = 0
    waiting = [path]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as listed:
                for entry in listed:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        files += 1
                        size += entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
        except OSError:
            continue
    return files, size
