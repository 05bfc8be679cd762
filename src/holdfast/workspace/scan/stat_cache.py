"""The stat cache: each directory as last seen, so that unchanged files are not read.

It belongs to one snapshot, which a live checkpoint holds: `reference` and `checkpoint`. It is an
append-only file next to the store, rewritten from time to time. It may be deleted at any time, or
be damaged: then everything is read again, nothing else.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import zstandard

from holdfast.backends.files.disk import Disk
from holdfast.errors import CorruptError
from holdfast.model.snapshot import FileEntry, Kind
from holdfast.workspace.scan import ignore

FORMAT = 2
REWRITE_BEYOND = 3  # once the additions are so many times as large as what they were added to
MAX_INFLATED = 1 << 31


class File(NamedTuple):
    """A file or symlink as last seen.

    A `ctime_ns` of 0 matches nothing: the file may have changed in the same instant.
    """

    ctime_ns: int
    size: int
    inode: int
    mode: int  # with the kind
    content: bytes


@dataclass(slots=True)
class CachedDirectory:
    ctime_ns: int
    inode: int
    mode: int
    rules: bytes  # the key of the rules by which its names were judged
    files: dict[bytes, File] = field(default_factory=dict)
    directories: dict[bytes, int] = field(default_factory=dict)  # modes
    excluded: dict[bytes, str] = field(default_factory=dict)
    skipped: dict[bytes, str] = field(default_factory=dict)
    hidden: tuple[tuple[bytes, bytes], ...] = ()  # ignore files that are left out themselves, and what they say

    @property
    def is_plain(self) -> bool:
        """Return whether nothing in the directory itself decides what is left out of it."""
        return not self.excluded and self.files.keys().isdisjoint(ignore.FILES)

    def copy(self) -> CachedDirectory:
        return CachedDirectory(
            self.ctime_ns,
            self.inode,
            self.mode,
            self.rules,
            dict(self.files),
            dict(self.directories),
            dict(self.excluded),
            dict(self.skipped),
            self.hidden,
        )

    def remove(self, name: bytes) -> None:
        self.files.pop(name, None)
        self.directories.pop(name, None)
        self.excluded.pop(name, None)
        self.skipped.pop(name, None)


class Totals(NamedTuple):
    files: int = 0
    directories: int = 0
    symlinks: int = 0
    size: int = 0

    def change(self, before: FileEntry | None, after: FileEntry | None) -> Totals:
        files, directories, symlinks, size = self
        for entry, sign in ((before, -1), (after, 1)):
            if entry is None:
                continue
            if entry.kind == "file":
                files += sign
                size += sign * entry.size
            elif entry.kind == "dir":
                directories += sign
            else:
                symlinks += sign
        return Totals(files, directories, symlinks, size)


NOTHING = Totals()


@dataclass(slots=True)
class StatCache:
    directories: dict[bytes, CachedDirectory] = field(default_factory=dict)
    chunks: dict[bytes, bytes] = field(default_factory=dict)  # lists of chunks, by their hash
    totals: Totals = NOTHING
    reference: str | None = None
    checkpoint: bytes | None = None  # that holds the snapshot
    reporting: set[bytes] = field(default_factory=set)  # the directories with left-out paths

    def put(self, path: bytes, directory: CachedDirectory | None) -> None:
        """Replace the cached directory; None if it is gone."""
        self.reporting.discard(path)
        if directory is None:
            self.directories.pop(path, None)
            return
        self.directories[path] = directory
        if directory.excluded or directory.skipped:
            self.reporting.add(path)

    def apply(
        self, updated: Mapping[bytes, CachedDirectory | None], chunks: Mapping[bytes, bytes], totals: Totals
    ) -> None:
        for path, directory in updated.items():
            self.put(path, directory)
        self.chunks.update(chunks)
        self.totals = totals


class CachedBlobs:
    """The blobs of files that the cache's snapshot holds, with reference counts.

    Several files may have one blob. Once the last of them drops it, gc may collect it, and it must
    be stored again should it come back.
    """

    def __init__(self, cache: StatCache) -> None:
        self._chunks = cache.chunks
        self._contents: Counter[bytes] = Counter()
        self._pieces: Counter[bytes] = Counter()  # chunks of the lists that are among the contents
        for directory in cache.directories.values():
            self._contents.update(file.content for file in directory.files.values())
        for content in self._contents.keys() & cache.chunks.keys():
            self._pieces.update(_pieces(cache.chunks[content]))

    def __contains__(self, hash_: object) -> bool:
        return hash_ in self._contents or hash_ in self._pieces

    def change(self, released: Iterable[bytes], gained: Iterable[bytes]) -> None:
        """Update the counts of changed files. The chunk lists of gained contents are in the cache."""
        for content in gained:
            self._contents[content] += 1
            if self._contents[content] == 1 and content in self._chunks:
                self._pieces.update(_pieces(self._chunks[content]))
        for content in released:
            self._contents[content] -= 1
            if self._contents[content] <= 0:
                del self._contents[content]
                for piece in _pieces(self._chunks[content]) if content in self._chunks else ():
                    self._pieces[piece] -= 1
                    if self._pieces[piece] <= 0:
                        del self._pieces[piece]


def _pieces(listed: bytes) -> list[bytes]:
    return [hash_ for _, hash_ in ormsgpack.unpackb(listed)]


def file_entry(path: bytes, file: File) -> FileEntry:
    kind: Kind = "symlink" if file.mode & 0o170000 == 0o120000 else "file"
    return FileEntry(path, kind, file.mode & 0o7777, file.size, file.content)


class CacheFile:
    """The stat cache of one workspace as a file of parts, each with its size and CRC.

    Later parts replace what earlier ones say of a directory. The file is next to the store, where
    an attacker may have put links: none is followed.
    """

    def __init__(self, directory: Path, path: str, root: bytes) -> None:
        """Make a cache file; `path` is relative to `directory`, the store's directory."""
        self._disk = Disk(str(directory), durable=False)
        self._path = path
        self._root = root
        self._first = self._size = 0  # of the first part, of all of them: 0 if the file is to be rewritten
        self._inode = 0
        self._is_swept = False

    def load(self) -> StatCache:
        """Read the cache, without changing anything on disk; an empty one if it is damaged."""
        cache = StatCache()
        self._first = self._size = 0
        try:
            self._inode = self._disk.tree.info(self._path).st_ino
            data = self._disk.read(self._path) or b""
        except (OSError, CorruptError):
            return cache
        at = 0
        try:
            while at < len(data):
                size, checksum = (int.from_bytes(data[at + i : at + i + 4], "big") for i in (0, 4))
                packed = data[at + 8 : at + 8 + size]
                if len(packed) != size or zlib.crc32(packed) != checksum:
                    raise ValueError("a part is damaged")
                if not 0 <= zstandard.frame_content_size(packed) <= MAX_INFLATED:
                    raise ValueError("a part is too large")
                self._read(cache, ormsgpack.unpackb(zstandard.ZstdDecompressor().decompress(packed)))
                at += 8 + size
                self._first = self._first or at
        except (ValueError, TypeError, KeyError, zstandard.ZstdError):
            self._first = 0
            return StatCache()
        self._size = at
        return cache

    def save(
        self,
        cache: StatCache,
        updated: Mapping[bytes, CachedDirectory | None],
        chunks: Mapping[bytes, bytes],
        before: Mapping[bytes, CachedDirectory | None],
    ) -> None:
        """Append the changes, or write the whole cache; `before` is the directories' earlier content.

        A failure costs only time at the next start.
        """
        try:
            self._sweep()
            if self._first and self._size <= (1 + REWRITE_BEYOND) * self._first:
                part = _part(self._root, cache, updated, chunks, before)
                if self._append(part):
                    return
            self._disk.make_folder(self._path.rpartition("/")[0])
            held = {file.content for directory in cache.directories.values() for file in directory.files.values()}
            lists = {content: listed for content, listed in cache.chunks.items() if content in held}
            part = _part(self._root, cache, cache.directories, lists, {})
            temporary = f"{self._path}.{os.getpid()}"
            self._disk.remove(temporary)
            self._disk.create(temporary, part)
            self._inode = self._disk.tree.info(temporary).st_ino
            self._disk.move(temporary, self._path)
            self._first = self._size = len(part)
        except (OSError, CorruptError):
            self.start_over()  # the next part would be appended to something else

    def _sweep(self) -> None:
        """Remove, once, what processes have left here that died while they wrote."""
        if self._is_swept:
            return
        self._is_swept = True
        folder, _, name = self._path.rpartition("/")
        with contextlib.suppress(OSError):
            for left in self._disk.names(folder):
                pid = left.removeprefix(f"{name}.")
                if pid != left and pid.isdecimal() and _has_ended(int(pid)):
                    self._disk.remove(f"{folder}/{left}")

    def is_as_left(self) -> bool:
        """Return whether the file is unchanged since it was loaded or saved here: no one else took a snapshot."""
        try:
            found = self._disk.tree.info(self._path)
        except (OSError, CorruptError):
            return False
        return (found.st_ino, found.st_size) == (self._inode, self._size)

    def start_over(self) -> None:
        """Rewrite the file at the next save: it does not match the cache."""
        self._first = self._size = 0

    def _append(self, part: bytes) -> bool:
        """Append a part, unless another process has written to the file since.

        That process's observations belong to its snapshot, not to ours.
        """
        import fcntl

        descriptor, _ = self._disk.tree.open_file(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            found = os.fstat(descriptor)
            if (found.st_ino, found.st_size, found.st_nlink) != (self._inode, self._size, 1):
                return False
            self._size += os.write(descriptor, part)
        finally:
            os.close(descriptor)
        return True

    def _read(self, cache: StatCache, part: dict[str, Any]) -> None:
        if part["format"] != FORMAT or part["root"] != self._root:
            raise ValueError("of another kind, or directory")
        for path, listed in part["directories"]:
            if listed is None:
                cache.put(path, None)
                continue
            ctime, inode, mode, rules, files, directories, excluded, skipped, hidden, *gone = listed
            seen = {name: File(*rest) for name, *rest in files}
            others: tuple[Any, ...] = (directories, excluded, skipped)
            if gone:  # only what has changed is listed
                known = cache.directories[path]
                seen = {**known.files, **seen}
                for name in gone[0]:
                    del seen[name]
                kept = (known.directories, known.excluded, known.skipped)
                others = tuple(was if now is None else now for was, now in zip(kept, others, strict=True))
            rule_files = tuple((name, content) for name, content in hidden)
            directories, excluded, skipped = map(dict, others)
            cache.put(
                path, CachedDirectory(ctime, inode, mode, rules, seen, directories, excluded, skipped, rule_files)
            )
        cache.chunks.update(part["chunks"])
        cache.totals = Totals(*part["totals"])
        cache.reference, cache.checkpoint = part["reference"], part["checkpoint"]


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # it is another user's
    return False


def _list_directory(directory: CachedDirectory, before: CachedDirectory | None) -> list[Any]:
    """Return a whole directory; if it was known before, its changes and the names of removed files."""
    listed: list[Any] = [directory.ctime_ns, directory.inode, directory.mode, directory.rules]
    if before is None:
        listed.append([[name, *file] for name, file in directory.files.items()])
        listed += [
            [list(pair) for pair in names.items()]
            for names in (directory.directories, directory.excluded, directory.skipped)
        ]
        return [*listed, list(directory.hidden)]
    # An unchanged part is the same object: comparing contents takes a third longer.
    listed.append([[name, *file] for name, file in directory.files.items() if before.files.get(name) is not file])
    for was, now in (
        (before.directories, directory.directories),
        (before.excluded, directory.excluded),
        (before.skipped, directory.skipped),
    ):
        listed.append(None if was == now else [list(pair) for pair in now.items()])
    return [*listed, list(directory.hidden), [name for name in before.files if name not in directory.files]]


def _part(
    root: bytes,
    cache: StatCache,
    directories: Mapping[bytes, CachedDirectory | None],
    chunks: Mapping[bytes, bytes],
    before: Mapping[bytes, CachedDirectory | None],
) -> bytes:
    packed = ormsgpack.packb(
        {
            "format": FORMAT,
            "root": root,
            "reference": cache.reference,
            "checkpoint": cache.checkpoint,
            "totals": list(cache.totals),
            "chunks": [list(item) for item in chunks.items()],
            "directories": [
                [path, None if directory is None else _list_directory(directory, before.get(path))]
                for path, directory in directories.items()
            ],
        }
    )
    data = zstandard.ZstdCompressor(level=1).compress(packed)
    return len(data).to_bytes(4, "big") + zlib.crc32(data).to_bytes(4, "big") + data
