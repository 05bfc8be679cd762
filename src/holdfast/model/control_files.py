"""Control files: repositories at any depth, and holdfast's own directory.

`git status` in a directory runs the program that `.git/config` names (`core.fsmonitor`), hooks run
with the next commit, Mercurial and others do the same. So no such path is written from an imported
snapshot unless the user asks for it. A name counts in every spelling that a file system may take
for it: other letter case, code points that HFS+ ignores, short names and stream suffixes of NTFS.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable

from holdfast.model.snapshot import FileEntry

_NAMES = frozenset({"git", "hg", "jj", "bzr", "sl", "svn", "holdfast"})  # each after a dot
_DARCS = "_darcs"
_IGNORED_ON_HFS = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_SHORT_NAME = re.compile(r"(?:git|hg|jj|bzr|sl|svn|holdfa|_darcs)~[0-9]+")
# A directory with all of one of these is a repository by itself, without a `.git` around it (`git
# init --bare`); `commondir` names the directory that holds the rest of it.
_BARE = (frozenset({"head", "objects", "refs"}), frozenset({"head", "commondir"}))
_MARKS = frozenset().union(*_BARE)
_OF_BARE = frozenset({"head", "config", "config.worktree", "commondir", "hooks"})


def is_control_name(name: bytes) -> bool:
    """Return whether a name belongs to a repository or to holdfast, on any file system."""
    for short in _spellings(name):
        if (short[:1] == "." and short[1:] in _NAMES) or short == _DARCS or _SHORT_NAME.fullmatch(short):
            return True
    return False


def _spellings(name: bytes) -> list[str]:
    """Return the names that some file system may take this one for."""
    text = unicodedata.normalize("NFKC", name.decode("utf-8", "replace"))
    parts = _IGNORED_ON_HFS.sub("", text).casefold().split("\\")
    return [part.partition(":")[0].rstrip(" .") for part in parts]


def control_paths(entries: Iterable[FileEntry]) -> Callable[[bytes], bytes | None]:
    """Return a function from a path among these to the topmost path of its repository, or None."""
    bare = _find_bare_repositories([entry.path for entry in entries])
    known: dict[bytes, bytes | None] = {b"": None}

    def top_of(path: bytes) -> bytes | None:
        unknown = []
        above = path
        while above not in known:
            unknown.append(above)
            above = above.rpartition(b"/")[0]
        for item in reversed(unknown):
            found = known[item.rpartition(b"/")[0]]
            if found is None and (item in bare or is_control_name(item.rpartition(b"/")[2])):
                found = item
            known[item] = found
        return known[path]

    return top_of


def _find_bare_repositories(paths: Collection[bytes]) -> set[bytes]:
    """Return the paths that make a directory a bare repository, without a `.git`."""
    held: dict[bytes, set[str]] = {}
    parts: list[tuple[bytes, bytes]] = []  # path and directory of what git would read
    for path in paths:
        directory, _, name = path.rpartition(b"/")
        for short in _spellings(name):
            if short in _MARKS:
                held.setdefault(directory, set()).add(short)
            if short in _OF_BARE:
                parts.append((path, directory))
    bare = {directory for directory, names in held.items() if any(marks <= names for marks in _BARE)}
    return {path for path, directory in parts if directory in bare}
