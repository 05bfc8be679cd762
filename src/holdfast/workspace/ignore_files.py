"""The files in a directory that decide about what is left out, as they are now; what they say is read in `ignore.py`."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection

from holdfast.workspace import ignore
from holdfast.workspace.guards import FILE_FLAGS
from holdfast.workspace.statcache import Directory

# A change of one of these names may change what is left out of directories that have not changed.
DECIDING = frozenset((*ignore.FILES, *ignore.MARKED_INSIDE, *ignore.MARKED_BESIDE.values()))


def rules_in(descriptor: int, path: bytes, rules: ignore.Rules, names: Collection[bytes]) -> ignore.Rules:
    """The rules in a directory that has those of these names that are ignore files."""
    found = [_content_of(name, descriptor) if name in names else None for name in ignore.FILES]
    return rules.below(path, *found)


def known_in(directory: Directory) -> list[bytes]:
    """Those of the ignore files that a known directory has."""
    return [name for name in ignore.FILES if name in directory.files or name in directory.excluded]


def has_lost_marker(descriptor: int, old: Directory) -> bool:
    """Whether a directory that is left out for what is in it no longer has that."""
    for name, rule in old.excluded.items():
        marker = rule.rpartition("(")[2].rstrip(")") if rule.startswith("by default") else ""
        if marker.encode() in ignore.MARKED_INSIDE:
            try:
                os.stat(name + b"/" + marker.encode(), dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                return True
    return False


def _content_of(name: bytes, directory: int) -> bytes | None:
    """An ignore file's content; None if there is none that can be read, as git does."""
    try:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=directory)
    except OSError:
        return None
    try:
        return os.read(descriptor, ignore.MAX_RULES_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
