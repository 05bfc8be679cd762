"""A write set: decided changes that are not made yet, and a view of the store with them.

Commits that arrive together are decided one after another on one such view, so that later ones see
the effects of earlier ones. They are then made durable together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from holdfast.backends.files.disk import FileInfo, FileReader


class StagedPut(NamedTuple):
    data: bytes
    time_us: int | None = None


class HardLink(NamedTuple):
    """A second name for a file that the same commit puts at `of`."""

    of: str


class Touch(NamedTuple):
    time_us: int


class Remove(NamedTuple):
    pass


Change = StagedPut | HardLink | Touch | Remove


class View(Protocol):
    def read(self, path: str) -> bytes | None: ...

    def names(self, folder: str) -> list[str]: ...

    def info(self, path: str) -> FileInfo | None: ...


class StoreView(View, Protocol):
    """The whole store, as readers see it."""

    @property
    def root(self) -> str: ...

    def resolve(self, path: str) -> str: ...

    def open_to_read(self, path: str) -> AbstractContextManager[FileReader | None]: ...

    def measure_usage(self, folder: str) -> int: ...


class Changes:
    """The changes: the last decided one for each path, and the new records in their order."""

    def __init__(self, below: View, last_position: Callable[[], int]) -> None:
        """Begin with no changes; `last_position` returns the position of the newest record below this view."""
        self._below = below
        self._last_position = last_position
        self.by_path: dict[str, Change] = {}
        self.new_records: list[bytes] = []
        self._by_folder: defaultdict[str, dict[str, bool]] = defaultdict(dict)  # name → whether it will exist

    # -- the store as it will be ---------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes | None:
        match self.by_path.get(path):
            case StagedPut(data=data):
                return data
            case HardLink(of=of):
                return self.read(of)
            case Remove():
                return None
            case _:
                return self._below.read(path)

    def names(self, folder: str) -> list[str]:
        names = self._below.names(folder)
        changed = self._by_folder.get(folder)
        if not changed:
            return names
        return [name for name in names if name not in changed] + [name for name, exists in changed.items() if exists]

    def info(self, path: str) -> FileInfo | None:
        match self.by_path.get(path):
            case StagedPut(data=data, time_us=time_us):
                return FileInfo(len(data), time_us or 0)
            case HardLink(of=of):
                return self.info(of)
            case Touch(time_us=time_us):
                below = self._below.info(path)
                return FileInfo(below.size, time_us) if below else None
            case Remove():
                return None
            case _:
                return self._below.info(path)

    def last_position(self) -> int:
        return self._last_position() + len(self.new_records)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def put(self, path: str, data: bytes, time_us: int | None = None) -> None:
        self._change(path, StagedPut(data, time_us))

    def link(self, path: str, of: str) -> None:
        self._change(path, HardLink(of))

    def touch(self, path: str, time_us: int) -> None:
        known = self.by_path.get(path)
        self._change(path, StagedPut(known.data, time_us) if isinstance(known, StagedPut) else Touch(time_us))

    def remove(self, path: str) -> None:
        self._change(path, Remove())

    def add_record(self, id_: bytes) -> int:
        """Return the position of a new record."""
        self.new_records.append(id_)
        return self.last_position()

    def absorb(self, later: Changes) -> None:
        """Take over the changes that were decided on top of this view."""
        self.new_records += later.new_records
        for path, change in later.by_path.items():
            if isinstance(change, Touch):
                self.touch(path, change.time_us)
            else:
                self._change(path, change)

    def _change(self, path: str, change: Change) -> None:
        self.by_path.pop(path, None)  # the last decided comes last: a twin after its original
        self.by_path[path] = change
        folder, _, name = path.rpartition("/")
        if not isinstance(change, Touch):
            self._by_folder[folder][name] = not isinstance(change, Remove)
