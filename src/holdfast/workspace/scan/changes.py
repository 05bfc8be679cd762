"""The changes that a walk finds, and the new cache entries of the directories."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.model.snapshot import FileEntry
from holdfast.workspace.limits import NO_MORE, Budget
from holdfast.workspace.scan.stat_cache import NOTHING, CachedDirectory, StatCache, Totals, file_entry


@dataclass(slots=True)
class ChangeSet:
    """The notes of a walk. The cache stays as it is until the snapshot is acknowledged."""

    cache: StatCache
    budget: Budget
    changes: dict[bytes, FileEntry | None] = field(default_factory=dict)
    updated: dict[bytes, CachedDirectory | None] = field(default_factory=dict)
    chunks: dict[bytes, bytes] = field(default_factory=dict)
    torn: list[bytes] = field(default_factory=list)
    unseen: list[bytes] = field(default_factory=list)  # changed although nothing but their bytes tells
    released: list[bytes] = field(default_factory=list)  # contents that files had
    gained: list[bytes] = field(default_factory=list)  # contents that files have instead
    totals: Totals = NOTHING

    def directory(self, path: bytes) -> CachedDirectory | None:
        """Return the directory as known by now."""
        return self.updated[path] if path in self.updated else self.cache.directories.get(path)

    def get_changeable(self, path: bytes) -> CachedDirectory:
        """Return the same, to be changed."""
        found = self.updated.get(path)
        if found is None:
            found = self.updated[path] = self.cache.directories[path].copy()
        return found

    def note(self, path: bytes, before: FileEntry | None, after: FileEntry | None) -> None:
        if before == after:
            return
        self.changes[path] = after
        self._count(before, after)
        self.budget.check_totals(self.totals.files, self.totals.size)

    def note_mode(self, path: bytes, before: int | None, after: int) -> None:
        """Note the mode of a directory."""
        self.note(path, _directory_entry(path, before), _directory_entry(path, after))

    def add_files(self, count: int, size: int) -> None:
        """Count new files that are in the changes already."""
        files, directories, symlinks, sizes = self.totals
        self.totals = Totals(files + count, directories, symlinks, sizes + size)
        self.budget.check_totals(self.totals.files, self.totals.size)

    def note_gone(self, path: bytes, old: CachedDirectory, fresh: CachedDirectory) -> None:
        """Note what a directory has no more."""
        base = path + b"/" if path else b""
        for name in old.files.keys() - fresh.files.keys():
            if name not in fresh.directories:
                self.note(base + name, file_entry(base + name, old.files[name]), None)
            else:  # a directory has taken its name, and the place in the changes
                self._count(file_entry(base + name, old.files[name]), None)
        for name in old.directories.keys() - fresh.directories.keys():
            self._remove(base + name, keep=name in fresh.files)

    def leave_out(self, path: bytes, why: str) -> None:
        """Note that a directory turned out to be left out, in the directory above it."""
        above, _, name = path.rpartition(b"/")
        parent = self.get_changeable(above)
        parent.directories.pop(name, None)
        parent.excluded[name] = why
        self._remove(path)

    def note_unreadable(self, above: bytes, name: bytes, error: OSError) -> None:
        """Note a directory that can't be opened; the next scan reads its parent whatever its mtime says."""
        parent = self.get_changeable(above)
        parent.directories.pop(name, None)
        parent.ctime_ns = 0
        if not isinstance(error, FileNotFoundError):
            parent.skipped[name] = describe_failure(error)
        self._remove(above + b"/" + name if above else name)

    def _remove(self, path: bytes, *, keep: bool = False) -> None:
        """Remove a directory and everything below it. With `keep`, something else has taken its name."""
        entry = FileEntry(path, "dir", 0, 0, b"")
        if keep:
            self.totals = self.totals.change(entry, None)
        elif path in self.changes and not self._was_known(path):
            self.totals = self.totals.change(self.changes.pop(path), None)
            if self._was_file(path):  # its name was taken by the directory: it is gone all the same
                self.changes[path] = None
        elif self._was_known(path):
            self.note(path, entry, None)
        known = self.cache.directories.get(path)
        if path in self.updated:
            self.updated[path] = None
        if known is None:
            return
        self.updated[path] = None
        for name, file in known.files.items():
            self.note(path + b"/" + name, file_entry(path + b"/" + name, file), None)
        for name in known.directories:
            self._remove(path + b"/" + name)

    def _was_known(self, path: bytes) -> bool:
        above, _, name = path.rpartition(b"/")
        known = self.cache.directories.get(above)
        return known is not None and name in known.directories

    def _was_file(self, path: bytes) -> bool:
        above, _, name = path.rpartition(b"/")
        known = self.cache.directories.get(above)
        return known is not None and name in known.files

    def _count(self, before: FileEntry | None, after: FileEntry | None) -> None:
        self.totals = self.totals.change(before, after)
        if before is not None and before.kind != "dir":
            self.released.append(before.content)
        if after is not None and after.kind != "dir":
            self.gained.append(after.content)


def describe_failure(error: OSError) -> str:
    """Return why a file is left out; an error that is not about the file prevents the snapshot instead."""
    if error.errno in NO_MORE:
        raise error
    return f"it can't be read: {error.strerror}"


def _directory_entry(path: bytes, mode: int | None) -> FileEntry | None:
    return None if mode is None else FileEntry(path, "dir", mode & 0o7777, 0, b"")
