"""The files of a directory that decide what is left out; `ignore.py` parses their text."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection

from holdfast.model.snapshot import RuleFile
from holdfast.workspace.limits import DIRECTORY_FLAGS, FILE_FLAGS, NO_FOLLOW, STORE_DIRECTORY
from holdfast.workspace.scan import ignore
from holdfast.workspace.scan.stat_cache import CachedDirectory

ANOTHER_STORE = "another store"  # why a directory is left out that has the name of a store's, and holds one
STORE_NAME = os.fsencode(STORE_DIRECTORY)
_BY_DEFAULT = "by default: "  # how a reason begins that no ignore file gives
_SQLITE = b"SQLite format 3\0"  # the header of every such file
# A change of one of these names may change what is left out of directories that have not changed.
DECIDING = frozenset((*ignore.FILES, *ignore.MARKED_INSIDE, *ignore.MARKED_BY_SIBLING.values()))


def rules_in(descriptor: int, path: bytes, rules: ignore.IgnoreRules, names: Collection[bytes]) -> ignore.IgnoreRules:
    """Return the rules in a directory that has those of these names that are ignore files."""
    found = [_content_of(name, descriptor) if name in names else None for name in ignore.FILES]
    return rules.enter(path, *found)


def list_known(directory: CachedDirectory) -> list[bytes]:
    """Return those of the ignore files that a known directory has."""
    return [name for name in ignore.FILES if name in directory.files or name in directory.excluded]


def deciding_at(root: bytes, path: bytes) -> dict[bytes, bytes]:
    """Return the deciding files that a directory below the root has now, with the text of ignore files.

    No symlink is followed.
    """
    descriptor = os.open(root, DIRECTORY_FLAGS)
    try:
        for part in path.split(b"/") if path else ():
            below = os.open(part, DIRECTORY_FLAGS | NO_FOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        existing = {name: b"" for name in DECIDING.difference(ignore.FILES) if _exists(name, descriptor)}
        contents = {name: _content_of(name, descriptor) for name in ignore.FILES}
        return existing | {name: content for name, content in contents.items() if content is not None}
    except OSError:  # no such directory: nothing decides in it
        return {}
    finally:
        os.close(descriptor)


def has_lost_marker(descriptor: int, old: CachedDirectory) -> bool:
    """Return whether a directory left out for a marker in it no longer has the marker."""
    for name, rule in old.excluded.items():
        if rule == ANOTHER_STORE and not is_store_at(name, descriptor):
            return True
        marker = _marker_inside(rule)
        if marker is not None and not _exists(name + b"/" + marker, descriptor):
            return True
    return False


def is_store_at(path: bytes, above: int) -> bool:
    """Return whether the directory at a path below another one holds a store."""
    try:
        descriptor = os.open(path, DIRECTORY_FLAGS | NO_FOLLOW, dir_fd=above)
    except OSError:
        return False
    try:
        return holds_store(descriptor)
    finally:
        os.close(descriptor)


def holds_store(descriptor: int) -> bool:
    """Return whether a directory with a store's name holds a store: a file of any name, or a directory."""
    from holdfast.backends.files import layout

    with os.scandir(descriptor) as listed:
        names = [os.fsencode(entry.name) for entry in listed]
    about = b"/" + layout.ABOUT.encode()
    return any(
        _exists(name + about, descriptor) or _content_of(name, descriptor, len(_SQLITE)) == _SQLITE for name in names
    )


def hidden_in(path: bytes, directory: CachedDirectory) -> list[RuleFile]:
    """Return a directory's deciding files that are left out themselves."""
    base = path + b"/" if path else b""
    found = [RuleFile(base + name, content) for name, content in directory.hidden]
    markers = (
        name for name in ignore.MARKED_BY_SIBLING.values() if name in directory.excluded or name in directory.skipped
    )
    found += [RuleFile(base + name) for name in markers]
    for name, rule in directory.excluded.items():
        if rule == ANOTHER_STORE:
            found.append(RuleFile(base + name))
        elif rule.startswith(_BY_DEFAULT) and (inside := _marker_inside(rule)):
            found.append(RuleFile(base + name + b"/" + inside))
    return found


def _marker_inside(rule: str) -> bytes | None:
    """Return the file for which a directory is left out that has it, by the reason that was given."""
    marker = rule.rpartition("(")[2].rstrip(")").encode() if rule.startswith(_BY_DEFAULT) else b""
    return marker if marker in ignore.MARKED_INSIDE else None


def _exists(path: bytes, directory: int) -> bool:
    try:
        os.stat(path, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _content_of(name: bytes, directory: int, size: int = ignore.MAX_RULES_BYTES) -> bytes | None:
    """Return an ignore file's content up to the size limit; None if it can't be read, as git does."""
    try:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=directory)
    except OSError:
        return None
    try:
        return os.read(descriptor, size) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
