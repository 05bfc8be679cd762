"""What was last seen of a directory: by it, files that did not change are told without being read.

It belongs to one snapshot, which a live checkpoint holds: `reference` and `checkpoint`. Kept beside the store as a file that
is only added to: what changed since, until it is written anew. It may be deleted at any time, and damaged: then everything
is read again, nothing else.
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

from holdfast.codec.decoding import collector_paused
from holdfast.model.workspace import Entry, Kind
from holdfast.workspace import ignore
from holdfast.workspace.vantages import Vantages

FORMAT = 2
REWRITE_BEYOND = 3  # once the additions are so many times as large as what they were added to
MAX_INFLATED = 1 << 31


class File(NamedTuple):
    """A file or symlink as it was. A `ctime_ns` of 0 matches nothing: it may have changed in the same instant."""

    ctime_ns: int
    size: int
    inode: int
    mode: int  # with the kind
    content: bytes


@dataclass(slots=True)
class Directory:
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
        """Whether nothing in the directory itself decides what is left out of it."""
        return not self.excluded and self.files.keys().isdisjoint(ignore.FILES)

    def copy(self) -> Directory:
        return Directory(
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

    def forget(self, name: bytes) -> None:
        self.files.pop(name, None)
        self.directories.pop(name, None)
        self.excluded.pop(name, None)
        self.skipped.pop(name, None)


class Totals(NamedTuple):
    files: int = 0
    directories: int = 0
    symlinks: int = 0
    size: int = 0

    def changed(self, before: Entry | None, after: Entry | None) -> Totals:
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
    directories: dict[bytes, Directory] = field(default_factory=dict)
    chunks: dict[bytes, bytes] = field(default_factory=dict)  # lists of chunks, by their hash
    totals: Totals = NOTHING
    reference: str | None = None
    checkpoint: bytes | None = None  # that holds the snapshot
    reporting: set[bytes] = field(default_factory=set)  # the directories of which something was left out
    _vantages: Vantages | None = None

    def vantages(self) -> Vantages:
        """From where all that is known is looked at. It is kept up to date."""
        if self._vantages is None or self._vantages.is_outgrown:
            self._vantages = Vantages(self.directories)
        return self._vantages

    def put(self, path: bytes, directory: Directory | None) -> None:
        """What is known of a directory from now on; None if it is gone."""
        self.reporting.discard(path)
        if self._vantages is not None:
            self._vantages.put(path, directory)
        if directory is None:
            self.directories.pop(path, None)
            return
        self.directories[path] = directory
        if directory.excluded or directory.skipped:
            self.reporting.add(path)

    def apply(self, updated: Mapping[bytes, Directory | None], chunks: Mapping[bytes, bytes], totals: Totals) -> None:
        for path, directory in updated.items():
            self.put(path, directory)
        self.chunks.update(chunks)
        self.totals = totals


class Held:
    """The blobs of files that the cache's snapshot holds. They are counted, since several files may have one: what the last
    of them lets go may be collected, and must be stored again should it come back."""

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
        """Files have other contents now. The lists of chunks of what was gained are in the cache."""
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


def file_entry(path: bytes, file: File) -> Entry:
    kind: Kind = "symlink" if file.mode & 0o170000 == 0o120000 else "file"
    return Entry(path, kind, file.mode & 0o7777, file.size, file.content)


class CacheFile:
    """The cache of one workspace as a file: parts, each with its size and CRC, of which later ones replace what earlier
    ones say of a directory."""

    def __init__(self, path: Path, root: bytes) -> None:
        self._path = path
        self._root = root
        self._first = self._size = 0  # of the first part, of all of them: 0 if the file is to be written anew
        self._inode = 0

    def load(self) -> StatCache:
        self._sweep()
        cache = StatCache()
        self._first = self._size = 0
        try:
            with self._path.open("rb") as file:
                self._inode = os.fstat(file.fileno()).st_ino
                data = file.read()
        except OSError:
            return cache
        at = 0
        try:
            with collector_paused():
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
        updated: Mapping[bytes, Directory | None],
        chunks: Mapping[bytes, bytes],
        before: Mapping[bytes, Directory | None],
    ) -> None:
        """Adds what changed (`before` is what these directories were), or writes all of it. Failing costs time at the next
        start, nothing else."""
        try:
            if self._first and self._size <= (1 + REWRITE_BEYOND) * self._first:
                part = _part(self._root, cache, updated, chunks, before)
                if self._append(part):
                    return
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = {file.content for directory in cache.directories.values() for file in directory.files.values()}
            lists = {content: listed for content, listed in cache.chunks.items() if content in held}
            part = _part(self._root, cache, cache.directories, lists, {})
            temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(part)
                self._inode = os.fstat(descriptor).st_ino
            temporary.replace(self._path)
            self._first = self._size = len(part)
        except OSError:
            self.start_over()  # what is to be added next would be added to something else

    def _sweep(self) -> None:
        """Removes what processes have left here that died while they wrote."""
        with contextlib.suppress(OSError):
            for left in self._path.parent.glob(f"{self._path.name}.*"):
                pid = left.name.rpartition(".")[2]
                if pid.isdecimal() and _has_ended(int(pid)):
                    left.unlink()

    def start_over(self) -> None:
        """What is in the file is not what is known: it is written anew the next time."""
        self._first = self._size = 0

    def _append(self, part: bytes) -> bool:
        """Adds a part, if nobody else has written to the file since: what another process saw goes with its snapshot, not
        with ours."""
        import fcntl

        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            found = os.fstat(descriptor)
            if (found.st_ino, found.st_size) != (self._inode, self._size):
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
            said = tuple((name, content) for name, content in hidden)
            directories, excluded, skipped = map(dict, others)
            cache.put(path, Directory(ctime, inode, mode, rules, seen, directories, excluded, skipped, said))
        cache.chunks.update(part["chunks"])
        cache.totals = Totals(*part["totals"])
        cache.reference, cache.checkpoint = part["reference"], part["checkpoint"]


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # it is somebody else's
    return False


def _listed(one: Directory, before: Directory | None) -> list[Any]:
    """All of a directory; if it was known before, what of it has changed, and the names of files that are gone."""
    listed: list[Any] = [one.ctime_ns, one.inode, one.mode, one.rules]
    if before is None:
        listed.append([[name, *file] for name, file in one.files.items()])
        listed += [[list(pair) for pair in names.items()] for names in (one.directories, one.excluded, one.skipped)]
        return [*listed, list(one.hidden)]
    # What has not changed is the same object: to compare what is in it takes a third longer.
    listed.append([[name, *file] for name, file in one.files.items() if before.files.get(name) is not file])
    for was, now in (
        (before.directories, one.directories),
        (before.excluded, one.excluded),
        (before.skipped, one.skipped),
    ):
        listed.append(None if was == now else [list(pair) for pair in now.items()])
    return [*listed, list(one.hidden), [name for name in before.files if name not in one.files]]


def _part(
    root: bytes,
    cache: StatCache,
    directories: Mapping[bytes, Directory | None],
    chunks: Mapping[bytes, bytes],
    before: Mapping[bytes, Directory | None],
) -> bytes:
    packed = ormsgpack.packb(
        {
            "format": FORMAT,
            "root": root,
            "reference": cache.reference,
            "checkpoint": cache.checkpoint,
            "totals": list(cache.totals),
            "chunks": [list(one) for one in chunks.items()],
            "directories": [
                [path, None if one is None else _listed(one, before.get(path))] for path, one in directories.items()
            ],
        }
    )
    data = zstandard.ZstdCompressor(level=1).compress(packed)
    return len(data).to_bytes(4, "big") + zlib.crc32(data).to_bytes(4, "big") + data
