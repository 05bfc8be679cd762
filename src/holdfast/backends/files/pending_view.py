"""The store as a pending journal will leave it, for readers, which carry out no journal themselves.

A reader holds the shared lock, so the writer that committed the journal has died, or has failed to
carry it out. The commit is valid: the reader sees its files where they are staged, and the next
writer moves them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.backends.files import change_log, layout
from holdfast.backends.files.disk import Disk, FileInfo, FileReader
from holdfast.backends.files.journal_plan import JournalPlan


class _PatchedReader(NamedTuple):
    """A file with some of its bytes replaced."""

    below: FileReader
    start: int
    data: bytes

    @property
    def size(self) -> int:
        return max(self.below.size, self.start + len(self.data))

    def read_at(self, length: int, offset: int) -> bytes:
        found = bytearray(self.below.read_at(length, offset))
        begin, end = max(self.start, offset), min(self.start + len(self.data), offset + length)
        if begin < end:
            found.extend(bytes(max(0, end - offset - len(found))))
            found[begin - offset : end - offset] = self.data[begin - self.start : end - self.start]
        return bytes(found)


class PendingView:
    """A `View` of the store with a plan carried out."""

    def __init__(self, disk: Disk, plan: JournalPlan) -> None:
        self.root = disk.root
        self._disk = disk
        self._plan = plan
        self._sources = {path: source for source, path in plan.moves if disk.info(source) is not None}
        self._times = dict(plan.touches)
        self._removed = frozenset(plan.removals)
        self._added: defaultdict[str, set[str]] = defaultdict(set)  # names by folder
        for path in self._sources:
            while path:  # a copy of the store may lack the folders that were made for the files
                path, _, name = path.rpartition("/")  # noqa: PLW2901 - upward
                self._added[path].add(name)

    def resolve(self, path: str) -> str:
        return self._disk.resolve(path)

    def read(self, path: str) -> bytes | None:
        return None if path in self._removed else self._disk.read(self._sources.get(path, path))

    def names(self, folder: str) -> list[str]:
        found = {*self._disk.names(folder), *self._added.get(folder, ())}
        return [name for name in found if f"{folder}/{name}" not in self._removed]

    def info(self, path: str) -> FileInfo | None:
        found = None if path in self._removed else self._disk.info(self._sources.get(path, path))
        return found._replace(time_us=self._times[path]) if found is not None and path in self._times else found

    @contextmanager
    def open_to_read(self, path: str) -> Iterator[FileReader | None]:
        with self._disk.open_to_read(self._sources.get(path, path)) as file:
            if file is not None and path == layout.ORDER and self._plan.ids:
                yield _PatchedReader(file, *change_log.entries(file, self._plan.first, self._plan.ids))
            else:
                yield file

    def measure_usage(self, folder: str) -> int:
        return self._disk.measure_usage(folder)
