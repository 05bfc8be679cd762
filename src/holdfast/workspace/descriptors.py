"""Files named by a descriptor of their directory, so that nothing outside of a root can be reached, whatever is swapped
in on the way.

A directory is opened with `openat2`, which the kernel lets leave neither the root nor pass a symbolic link; where there is
none, or where the path is longer than a call takes, name by name without following links. The descriptor is used at once and closed: it stays what it was even if the
name comes to mean something else.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import UsageError

PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
DIRECTORY = PATH_ONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

SYS_OPENAT2 = 437  # the same on every architecture
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08
RENAME_NOREPLACE = 1
PATH_MAX = 4096  # of one call, with the zero at its end; a tree may well be deeper


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def _libc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    libc.syscall.restype = ctypes.c_long
    if hasattr(libc, "renameat2"):
        libc.renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return libc


_BENEATH = _How(DIRECTORY, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
_HOW, _HOW_SIZE = ctypes.addressof(_BENEATH), ctypes.sizeof(_BENEATH)


def open_root(path: str | bytes | os.PathLike[str]) -> int:
    """A descriptor of the root, whose own path may hold links: it is what the user named."""
    if os.open not in os.supports_dir_fd:
        raise UsageError("files can't be restored here: this system has no descriptors of directories")
    return os.open(os.path.realpath(path), os.O_RDONLY | DIRECTORY & ~PATH_ONLY)


@contextmanager
def parent_of(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """A descriptor of the directory that `path` is in, and the name within it."""
    above, _, name = path.rpartition(b"/")
    if not above:
        yield root, name
        return
    descriptor = open_directory(root, above)
    try:
        yield descriptor, name
    finally:
        os.close(descriptor)


def open_directory(root: int, path: bytes) -> int:
    """A descriptor of a directory below the root. `OSError` if it is none, or if a link is on the way."""
    if len(path) < PATH_MAX and _openat2_works():
        return _openat2(root, path)
    return _name_by_name(root, path)


@functools.cache
def _openat2_works() -> bool:
    """Whether the kernel has it (Linux 5.6), and no filter of system calls forbids it."""
    if _libc() is None:
        return False
    here = os.open(b"/", DIRECTORY)
    try:
        os.close(_openat2(here, b"."))
    except OSError:
        return False
    finally:
        os.close(here)
    return True


def _openat2(root: int, path: bytes) -> int:
    libc = _libc()
    assert libc is not None
    while True:
        found: int = libc.syscall(SYS_OPENAT2, root, path, _HOW, _HOW_SIZE)
        if found >= 0:
            return found
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: something was renamed on the way
            raise OSError(number, os.strerror(number), path)


def _name_by_name(root: int, path: bytes) -> int:
    current = os.dup(root)
    try:
        for name in path.split(b"/"):
            if name in (b"", b".", b".."):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
            below = os.open(name, DIRECTORY, dir_fd=current)
            os.close(current)
            current = below
    except BaseException:
        os.close(current)
        raise
    return current


def rename_new(directory: int, source: bytes, target: bytes) -> None:
    """Renames within a directory if `target` is not there; else `FileExistsError`, and nothing is changed."""
    libc = _libc()
    if libc is not None and hasattr(libc, "renameat2"):
        if libc.renameat2(directory, source, directory, target, RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS):  # these: this file system can't
            raise OSError(number, os.strerror(number), target)
    try:
        os.stat(target, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(source, target, src_dir_fd=directory, dst_dir_fd=directory)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)


def set_mode(directory: int, name: bytes, mode: int) -> None:
    """The mode of a file or directory, never of what a link leads to. Nobody needs to be allowed to read it."""
    descriptor = os.open(name, PATH_ONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        if sys.platform == "linux":
            os.chmod(f"/proc/self/fd/{descriptor}", mode)  # noqa: PTH101 - fchmod refuses a descriptor of O_PATH
        else:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def sync_file_system(root: int) -> None:
    """Everything that was written to the file system of the root is on the disk when this returns."""
    libc = _libc()
    if libc is not None and hasattr(libc, "syncfs"):
        if libc.syncfs(ctypes.c_int(root)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    else:
        os.sync()
