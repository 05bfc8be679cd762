"""Access to the files of one directory tree that follows no symbolic link and never leaves the tree.

The path of the root is the caller's own and may contain links. Below it every directory is opened
relative to a descriptor: by `openat2`, which the kernel lets neither leave the root nor pass a
link; where there is none, or where a path is longer than one call takes, name by name without
following links. A component that is swapped for a link between two calls is refused as well. Only
regular files are opened: a FIFO can't make a reader wait.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.backends.system_calls import openat2
from holdfast.errors import CorruptError, UsageError

_NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_CLOSE: int = getattr(os, "O_CLOEXEC", 0)
PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY)
READABLE_DIRECTORY: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_FOLLOW | _CLOSE
DIRECTORY: int = PATH_ONLY | READABLE_DIRECTORY
NEW_FILE: int = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _CLOSE
# Flags against a file that a stranger put there: links are not followed, FIFOs not waited for.
READABLE_FILE: int = os.O_RDONLY | _NO_FOLLOW | _CLOSE | getattr(os, "O_NONBLOCK", 0)
FILE_MODE = 0o600

PATH_MAX = 4096  # of one call, with the zero at its end; a tree may well be deeper
_NOT_OURS = (errno.ELOOP, errno.ENOTDIR, errno.EXDEV, errno.ENXIO, errno.EOPNOTSUPP, errno.EMLINK)  # BSD: EMLINK

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_root(path: str | bytes | os.PathLike[str]) -> int:
    """Open the root. Its own path may contain links: the user named it."""
    if os.open not in os.supports_dir_fd:
        raise UsageError("files can't be restored here: this system has no descriptors of directories")
    return os.open(os.path.realpath(path), READABLE_DIRECTORY)


@contextmanager
def parent_of(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield a descriptor of the directory that `path` is in, and the name within it."""
    above, _, name = path.rpartition(b"/")
    if not above:
        yield root, name
        return
    descriptor = open_directory(root, above)
    try:
        yield descriptor, name
    finally:
        os.close(descriptor)


def open_directory(root: int, path: bytes, flags: int = DIRECTORY) -> int:
    """Open a directory below the root; `OSError` if it is no directory, or if a link is on the way."""
    if b"\0" in path:  # where the C library would end it
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    if len(path) < PATH_MAX and _openat2_works():
        return openat2(root, path, flags)
    return _name_by_name(root, path, flags)


@functools.cache
def _openat2_works() -> bool:
    """Return whether the kernel has it (Linux 5.6), and no filter of system calls forbids it."""
    root = os.open(b"/", DIRECTORY)
    try:
        os.close(openat2(root, b".", DIRECTORY))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


def _name_by_name(root: int, path: bytes, flags: int) -> int:
    current = os.dup(root)
    try:
        *above, last = path.split(b"/")
        for name in (*above, last):
            if name in (b"", b".", b".."):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        for name in above:
            below = os.open(name, DIRECTORY, dir_fd=current)
            os.close(current)
            current = below
        below = os.open(last, flags, dir_fd=current)
    finally:
        os.close(current)
    return below


class RootDirectory:
    """A directory tree by its root's path. Paths below it are text, relative; `""` is the root itself.

    Methods raise `CorruptError` if a link, FIFO, socket or device stands where the tree should have
    a file or a directory; `OSError` for everything else. Each call opens the root: a tree that was
    moved away is not written to.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def resolve(self, path: str) -> str:
        """Return the whole path, for messages."""
        return f"{self.path}/{path}"

    def open_folder(self, folder: str, flags: int = DIRECTORY) -> int:
        """Open a directory; with `READABLE_DIRECTORY`, one that can be listed and synced."""
        if not folder:
            return os.open(self.path, flags & ~_NO_FOLLOW)
        root = os.open(self.path, DIRECTORY & ~_NO_FOLLOW)
        try:
            return open_directory(root, os.fsencode(folder), flags)
        except OSError as error:
            self._refuse_oddity(root, folder, error)
            raise
        finally:
            os.close(root)

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield a descriptor of the directory that `path` is in, and the name within it."""
        folder, _, name = path.rpartition("/")
        directory = self.open_folder(folder)
        try:
            yield directory, name
        finally:
            os.close(directory)

    def open_file(self, path: str, flags: int = os.O_RDONLY) -> tuple[int, os.stat_result]:
        """Open a regular file, and return its descriptor and status."""
        with self.parent(path) as (directory, name):
            try:
                descriptor = os.open(name, READABLE_FILE | flags, FILE_MODE, dir_fd=directory)
            except OSError as error:
                self._refuse_oddity(directory, name, error, path)
                raise
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.resolve(path))
            raise self._make_oddity_error(path, found.st_mode)
        return descriptor, found

    def info(self, path: str) -> os.stat_result:
        """Return the status of a regular file or a directory."""
        with self.parent(path) as (directory, name):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False) if name else os.fstat(directory)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise self._make_oddity_error(path, found.st_mode)
        return found

    def _refuse_oddity(self, directory: int, path: str, error: OSError, whole: str | None = None) -> None:
        """Raise `CorruptError` if a link or the like on the way made a call fail."""
        if error.errno not in _NOT_OURS:
            return
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            part = "/".join(parts[:count])
            try:
                with parent_of(directory, os.fsencode(part)) as (above, name):
                    mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
            except OSError:
                return
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise self._make_oddity_error(whole or part, mode) from error

    def _make_oddity_error(self, path: str, mode: int) -> CorruptError:
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        return CorruptError(
            f"{self.resolve(path)} is {kind}: below its root a store has regular files and directories only. It was "
            "not followed, and nothing was read or written through it. Put back what belongs there, or don't use "
            "this store"
        )
