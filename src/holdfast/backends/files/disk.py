"""The file system as the files backend uses it: paths relative to the store, owner-only modes, durable writes."""

# Paths are text here: a commit handles dozens of them, and pathlib would cost more than the calls do.
# ruff: noqa: PTH102, PTH105, PTH106, PTH108, PTH116, PTH120, PTH123, PTH208

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import StoreError

FOLDER_MODE = 0o700
FILE_MODE = 0o600

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
    """fsync, down to the medium on macOS too, where plain fsync stops at the drive's cache."""
    import fcntl

    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)


class Disk:
    """`durable=False` leaves out every fsync."""

    def __init__(self, root: str, *, durable: bool) -> None:
        self.root = root
        self._durable = durable

    def at(self, path: str) -> str:
        return f"{self.root}/{path}"

    # -- reading: what is not there is None, or empty -----------------------------------------------------------------

    def read(self, path: str) -> bytes | None:
        try:
            with open(self.at(path), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self.at(folder))
        except (FileNotFoundError, NotADirectoryError):  # a file among folders is not ours
            return []

    def info(self, path: str) -> FileInfo | None:
        try:
            found = os.stat(self.at(path))
        except FileNotFoundError:
            return None
        return FileInfo(found.st_size, found.st_mtime_ns // 1000)

    @contextlib.contextmanager
    def reading(self, path: str) -> Iterator[int | None]:
        """A descriptor to read parts of a file by."""
        try:
            descriptor = os.open(self.at(path), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    # -- writing -----------------------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes, time_us: int | None = None) -> None:
        """A new file with this content, durable but for its name: `sync_folder` makes that durable."""
        descriptor = os.open(self.at(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
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
        """Puts bytes into a file, which is made if it is not there; durable but for its name."""
        descriptor = os.open(self.at(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            rest = memoryview(data)
            while rest:
                written = os.pwrite(descriptor, rest, offset)
                rest, offset = rest[written:], offset + written
            if self._durable:
                sync_file(descriptor)
        finally:
            os.close(descriptor)

    def twin(self, path: str, other: str) -> None:
        """A second name for a file, or where the file system has no hard links, a copy."""
        try:
            os.link(self.at(path), self.at(other))
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            data = self.read(path)
            assert data is not None
            self.create(other, data)

    def move(self, path: str, target: str) -> None:
        """Puts a file in place of whatever is there, and its folder too."""
        try:
            os.replace(self.at(path), self.at(target))
        except FileNotFoundError:
            if self.info(path) is None:
                raise
            self.make_folder(os.path.dirname(target))
            os.replace(self.at(path), self.at(target))

    def touch(self, path: str, time_us: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.at(path), ns=(time_us * 1000, time_us * 1000))
            self._sync(path)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.at(path))

    def prune(self, folder: str) -> None:
        """Removes a folder if it is empty, and those above it that are empty without it, but for the topmost."""
        while "/" in folder:
            try:
                os.rmdir(self.at(folder))
            except OSError:  # it is not empty, or was removed before
                return
            folder = os.path.dirname(folder)

    def empty(self, folder: str) -> None:
        for name in self.names(folder):
            os.unlink(self.at(f"{folder}/{name}"))

    def make_folder(self, folder: str) -> None:
        """Durable at once: what is in a folder is no safer than the folder."""
        if self.info(folder) is not None:  # nearly always, and cheaper to find out than by trying
            return
        try:
            os.mkdir(self.at(folder), FOLDER_MODE)
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
        """Makes the names in a folder durable; if it was removed when it got empty, that."""
        try:
            self._sync(folder)
        except FileNotFoundError:
            if not folder:
                raise
            self.sync_folder(os.path.dirname(folder))

    def _sync(self, path: str) -> None:
        if not self._durable:
            return
        descriptor = os.open(self.at(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)

    def used(self, folder: str) -> int:
        """The bytes that a folder takes on the disk, each file counted once however many names it has."""
        total, seen = 0, set()
        for at, _, names in os.walk(self.at(folder)):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    found = os.lstat(f"{at}/{name}")
                    if found.st_ino not in seen:
                        seen.add(found.st_ino)
                        total += max(found.st_size, getattr(found, "st_blocks", 0) * 512)
        return total
