"""From where a look reaches what is known: directories that are opened, each for the sake of many names.

To open a directory takes as long as to pass through it some twenty times. So one is opened if that many names are reached through
it; else the names are reached from further up, by paths that are longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.workspace.columns import Columns
    from holdfast.workspace.statcache import Directory

WORTH_OPENING = 24  # names
HERE = b"."


class Vantage:
    """A directory that is opened, and the known directories that are looked at from there, with their files."""

    __slots__ = ("columns", "known", "path")

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.known: dict[bytes, Directory] = {}  # by their paths from here; the directory itself is `HERE`
        self.columns: Columns | None = None  # of what is known, for the quick look: None if they are to be made

    def put(self, path: bytes, directory: Directory | None) -> None:
        """What is known of a directory at or below this one, by its path from the root."""
        name = HERE if path == self.path else path[len(self.path) + 1 :] if self.path else path
        self.columns = None
        if directory is None:
            del self.known[name]
        else:
            self.known[name] = directory

    def whole(self, name: bytes) -> bytes:
        """The path from the root."""
        if name == HERE:
            return self.path
        return self.path + b"/" + name if self.path else name


class Vantages:
    """All known directories but the root, each at one vantage if it is plain. In `deciding` are those that are not: what they
    have in them decides about what is left out."""

    def __init__(self, directories: dict[bytes, Directory]) -> None:
        self.deciding: set[bytes] = set()
        self.were_used = False  # by a look: what a process does again may take more time to get ready
        self._vantages: dict[bytes, Vantage] = {}
        self._of: dict[bytes, Vantage] = {}  # by the paths of directories
        self._added = 0
        gathered: defaultdict[bytes, list[bytes]] = defaultdict(
            list
        )  # by a directory, those that are reached through it
        names: defaultdict[bytes, int] = defaultdict(int)  # how many these are, with their files
        for path, directory in reversed(directories.items()):  # mostly, what is below a directory comes before it then
            if not path:
                continue
            above = path.rpartition(b"/")[0]
            if not directory.is_plain:
                self.deciding.add(path)
            elif path not in names and len(directory.files) + 1 < WORTH_OPENING:  # as most of them
                gathered[above].append(path)
                names[above] += len(directory.files) + 1
                continue
            else:
                gathered[path].append(path)
                names[path] += len(directory.files) + 1
            reached, count = gathered.pop(path, ()), names.pop(path, 0)
            if count >= WORTH_OPENING:
                self._place(path, reached, directories)
            elif reached:
                gathered[above] += reached
                names[above] += count
        for reached in gathered.values():  # at the top, and what did not come before
            self._place(b"", reached, directories)

    def _place(self, at: bytes, paths: Sequence[bytes], directories: dict[bytes, Directory]) -> None:
        vantage = self._vantages.setdefault(at, Vantage(at))
        below = len(at) + 1 if at else 0
        vantage.known.update((path[below:] or HERE, directories[path]) for path in paths)
        self._of.update(dict.fromkeys(paths, vantage))

    def __iter__(self) -> Iterator[Vantage]:
        return iter(self._vantages.values())

    def put(self, path: bytes, directory: Directory | None) -> None:
        """What is known of a directory from now on; None if it is gone."""
        if not path:
            return
        self.deciding.discard(path)
        vantage = self._of.get(path)
        if directory is not None and directory.is_plain:
            if vantage is None:
                self._added += 1
                vantage = self._of[path] = self._nearest(path)
            vantage.put(path, directory)
            return
        if directory is not None:
            self.deciding.add(path)
        if vantage is not None:
            vantage.put(path, None)
            del self._of[path]
            if not vantage.known:
                del self._vantages[vantage.path]

    def _nearest(self, path: bytes) -> Vantage:
        """One that is there already. What becomes of it if there are many more is said by `is_outgrown`."""
        found = None
        while path and found is None:
            path = path.rpartition(b"/")[0]
            found = self._vantages.get(path)
        return found or self._vantages.setdefault(b"", Vantage(b""))

    @property
    def is_outgrown(self) -> bool:
        """Whether so much has been added that they had better be chosen anew."""
        return self._added > len(self._of) // 8
