"""The file system as the files backend uses it: relative paths, owner-only modes, durable writes.

Every file is reached through `backends/root_directory.py`: no link below the store's root is
followed, and anything but a regular file or directory is `CorruptError`. A file with other names is
never written in place: one of them may be outside.
"""

# Paths are text here: a commit handles dozens of them, and pathlib would cost more than the calls do.
# ruff: noqa: PTH120, PTH208

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from holdfast.backends.root_directory import FILE_MODE, NEW_FILE, READABLE_DIRECTORY, RootDirectory
from holdfast.errors import CorruptError, StoreError

FOLDER_MODE = 0o700
DEEPEST = 4  # maximum depth of the folders that we create
SMALLEST_READ = 4096
MAX_BYTES = (1 << 31) + (1 << 20)  # of a file that is read as a whole: the largest frame, and what is around it
COPY_END = ".copy"  # of the copy that replaces a file with other names

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space and try again",
    errno.EDQUOT: "your quota is used up: free some space and try again",
    errno.EIO: "the disk reports an error: check it (dmesg), and copy the store elsewhere",
    errno.EROFS: "it is mounted read-only: mount it writable, or move the store",
    errno.EACCES: "permission is denied: check owner and mode of the directory",
    errno.EPERM: "permission is denied: check owner and mode of the directory",
    errno.EMFILE: "this process has too many files open: close some, or raise `ulimit -n`",
    errno.ENAMETOOLONG: "the path is too long: use a directory with a shorter one",
    errno.ENOTDIR: "a file is where a directory should be: move it away",
    errno.ENOENT: "the directory is gone: was it deleted while the store was open?",
}
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)


class FileInfo(NamedTuple):
    size: int
    time_us: int


def store_error(root: str, attempted: str, error: OSError) -> StoreError:
    remedy = _REMEDIES.get(error.errno or 0, "see the cause above, then try again")
    named = f" ({error.filename})" if error.filename else ""
    return StoreError(f"the store in {root} could not be {attempted}: {error.strerror or error}{named}; {remedy}")


def sync_file(descriptor: int) -> None:
    """Sync a file down to the medium, also on macOS, where plain fsync stops at the drive's cache."""
    import fcntl

    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)


class FileReader(Protocol):
    """A file to read parts of."""

    @property
    def size(self) -> int: ...

    def read_at(self, length: int, offset: int) -> bytes: ...


class _DescriptorReader(NamedTuple):
    descriptor: int
    size: int

    def read_at(self, length: int, offset: int) -> bytes:
        return os.pread(self.descriptor, length, offset)


class Disk:
    """The directory of one store; `durable=False` leaves out every fsync."""

    def __init__(self, root: str, *, durable: bool) -> None:
        self.root = root
        self.tree = RootDirectory(root)
        self._durable = durable

    def resolve(self, path: str) -> str:
        return self.tree.resolve(path)

    # -- reading: a missing file is None, or empty ---------------------------------------------------------------------

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | None:
        """Return the content; raise `CorruptError` if it is longer than `most`, as a file with holes may be."""
        try:
            descriptor, found = self.tree.open_file(path)
        except FileNotFoundError:
            return None
        try:
            if found.st_size > most:
                raise CorruptError(
                    f"{self.resolve(path)} has {found.st_size:,} bytes, where a store has {most:,} at most: it was not "
                    "read. It is damaged; restore a backup, or don't use this store"
                )
            return _read_whole(descriptor, found.st_size)
        finally:
            os.close(descriptor)

    def names(self, folder: str) -> list[str]:
        try:
            directory = self.tree.open_folder(folder, READABLE_DIRECTORY)
        except FileNotFoundError:
            return []
        except NotADirectoryError:  # a file among folders is not ours
            if not folder:
                raise
            return []
        try:
            return os.listdir(directory)
        finally:
            os.close(directory)

    def info(self, path: str) -> FileInfo | None:
        try:
            found = self.tree.info(path)
        except FileNotFoundError:
            return None
        return FileInfo(found.st_size, found.st_mtime_ns // 1000)

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder; a link to one does not count."""
        try:
            return stat.S_ISDIR(self.tree.info(path).st_mode)
        except (FileNotFoundError, CorruptError):
            return False

    @contextlib.contextmanager
    def open_to_read(self, path: str) -> Iterator[FileReader | None]:
        try:
            descriptor, found = self.tree.open_file(path)
        except FileNotFoundError:
            yield None
            return
        try:
            yield _DescriptorReader(descriptor, found.st_size)
        finally:
            os.close(descriptor)

    # -- writing -----------------------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes, time_us: int | None = None) -> None:
        """Create a file with this content, durable except for its name: `sync_folder` makes that durable."""
        with self.tree.parent(path) as (directory, name):
            descriptor = os.open(name, NEW_FILE, FILE_MODE, dir_fd=directory)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if time_us is not None:
                os.utime(descriptor, ns=(time_us * 1000, time_us * 1000))
            if self._durable:
                sync_file(descriptor)
        finally:
            os.close(descriptor)

    def write_at(self, path: str, offset: int, data: bytes) -> None:
        """Write bytes into a file, which is created if missing; durable except for its name."""
        self._separate(path)
        descriptor, _ = self.tree.open_file(path, os.O_WRONLY | os.O_CREAT)
        try:
            rest = memoryview(data)
            while rest:
                written = os.pwrite(descriptor, rest, offset)
                rest, offset = rest[written:], offset + written
            if self._durable:
                sync_file(descriptor)
        finally:
            os.close(descriptor)

    def _separate(self, path: str) -> None:
        """Replace a file that has other names (such as a backup by hard links) by a copy to write to."""
        try:
            found = self.tree.info(path)
        except FileNotFoundError:
            return
        if found.st_nlink == 1:
            return
        data = self.read(path)
        assert data is not None
        self.remove(path + COPY_END)  # of a process that died
        self.create(path + COPY_END, data, found.st_mtime_ns // 1000)
        self.move(path + COPY_END, path)
        self.sync_folder(os.path.dirname(path))

    def link(self, path: str, other: str) -> None:
        """Give a file a second name, or a copy where the file system has no hard links."""
        try:
            with self.tree.parent(path) as (directory, name), self.tree.parent(other) as (target_directory, second):
                os.link(name, second, src_dir_fd=directory, dst_dir_fd=target_directory, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            data = self.read(path)
            assert data is not None
            self.create(other, data)

    def move(self, path: str, target: str) -> None:
        """Move a file, over any existing one; create its folder if missing."""
        try:
            self._rename(path, target)
        except FileNotFoundError:
            if self.info(path) is None:
                raise
            self.make_folder(os.path.dirname(target))
            self._rename(path, target)

    def _rename(self, path: str, target: str) -> None:
        with self.tree.parent(path) as (directory, name), self.tree.parent(target) as (target_directory, second):
            os.replace(name, second, src_dir_fd=directory, dst_dir_fd=target_directory)

    def touch(self, path: str, time_us: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._separate(path)
            descriptor, _ = self.tree.open_file(path)
            try:
                os.utime(descriptor, ns=(time_us * 1000, time_us * 1000))
                if self._durable:
                    sync_file(descriptor)
            finally:
                os.close(descriptor)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self.tree.parent(path) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def remove_folder(self, folder: str) -> None:
        """Remove an empty folder; raise `OSError` if it is not empty."""
        with self.tree.parent(folder) as (directory, name):
            os.rmdir(name, dir_fd=directory)

    def prune(self, folder: str) -> None:
        """Remove an empty folder, and the folders above it that become empty, except for the topmost."""
        while "/" in folder:
            try:
                self.remove_folder(folder)
            except OSError:  # it is not empty, or was removed before
                return
            folder = os.path.dirname(folder)

    def empty(self, folder: str) -> None:
        for name in self.names(folder):
            self.remove(f"{folder}/{name}")

    def make_folder(self, folder: str) -> None:
        """Create a folder, durable at once: a file is no safer than its folder."""
        if self.info(folder) is not None:  # nearly always, and cheaper to check than to try
            return
        try:
            with self.tree.parent(folder) as (directory, name):
                os.mkdir(name, FOLDER_MODE, dir_fd=directory)
        except FileExistsError:
            return
        except FileNotFoundError:
            if not folder:
                raise
            self.make_folder(os.path.dirname(folder))
            self.make_folder(folder)
            return
        self.sync_folder(os.path.dirname(folder))

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable, or its removal if it was pruned."""
        if not self._durable:
            return
        try:
            directory = self.tree.open_folder(folder, READABLE_DIRECTORY)
        except FileNotFoundError:
            if not folder:
                raise
            self.sync_folder(os.path.dirname(folder))
            return
        try:
            sync_file(directory)
        finally:
            os.close(directory)

    def measure_usage(self, folder: str) -> int:
        """Return the bytes that a folder takes on the disk, each file counted once despite several names."""
        total, seen = 0, set()
        top = self.tree.open_folder(folder, READABLE_DIRECTORY)
        try:
            for at, folders, names, directory in os.fwalk(".", dir_fd=top):
                if at.count("/") >= DEEPEST:
                    folders.clear()  # deeper folders are not ours, and may be endless
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                        if found.st_ino not in seen:
                            seen.add(found.st_ino)
                            total += max(found.st_size, getattr(found, "st_blocks", 0) * 512)
        finally:
            os.close(top)
        return total


def _read_whole(descriptor: int, size: int) -> bytes:
    """Read all of a file, also if it has grown since its size was read."""
    parts: list[bytes] = []
    while part := os.read(descriptor, max(size + 1, SMALLEST_READ)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
