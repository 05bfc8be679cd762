"""Linux system calls that the module `os` lacks: openat2, renameat2, syncfs and inotify.

This is the only module that uses `ctypes`. Each function raises `OSError` as those of `os` do, with
`ENOSYS` where the kernel or the C library has no such call.
"""

from __future__ import annotations

import errno
import functools
import os
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL

_SYS_OPENAT2 = 437  # the same on every architecture
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_RENAME_NOREPLACE = 1


def openat2(root: int, path: bytes, flags: int) -> int:
    """Open a path below the descriptor `root`; the kernel neither leaves the root nor follows a link."""
    how = _open_how(flags)
    while True:
        try:
            return _call("syscall", _SYS_OPENAT2, root, path, how, len(how), path=path)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: something was renamed on the way
                raise


def rename_noreplace(directory: int, source: bytes, target: bytes) -> None:
    """Rename within a directory.

    Raise `FileExistsError` if `target` exists, `OSError` (EINVAL) where the file system can't tell.
    """
    _call("renameat2", directory, source, directory, target, _RENAME_NOREPLACE, path=target)


def syncfs(descriptor: int) -> None:
    """Write everything on the file system of a descriptor to the disk."""
    _call("syncfs", descriptor)


def inotify_init() -> int:
    """Return the descriptor of a new inotify instance: non-blocking, closed on exec."""
    return _call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)


def inotify_add_watch(instance: int, path: bytes, mask: int) -> int:
    """Watch a path for the events of a mask, and return the watch."""
    return _call("inotify_add_watch", instance, path, mask)


def inotify_rm_watch(instance: int, watch: int) -> None:
    """Remove a watch; `OSError` if the kernel has removed it already."""
    _call("inotify_rm_watch", instance, watch)


def _call(name: str, *arguments: int | bytes, path: bytes | None = None) -> int:
    library = _libc()
    function = getattr(library, name, None) if library is not None else None
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)
    result: int = function(*arguments)
    if result < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result


@functools.cache
def _libc() -> CDLL | None:
    """Return the C library with the types of these calls; None on other systems than Linux."""
    if sys.platform != "linux":
        return None
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    number, text, unsigned = ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32
    types = {
        "syscall": (ctypes.c_long, number, text, text, ctypes.c_size_t),
        "renameat2": (number, text, number, text, unsigned),
        "syncfs": (number,),
        "inotify_init1": (number,),
        "inotify_add_watch": (number, text, unsigned),
        "inotify_rm_watch": (number, number),
    }
    for name, arguments in types.items():
        if hasattr(library, name):
            getattr(library, name).argtypes = arguments
    library.syscall.restype = ctypes.c_long
    return library


@functools.cache
def _open_how(flags: int) -> bytes:
    """Return the kernel's `struct open_how`: flags, mode, resolve."""
    return struct.pack("=QQQ", flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
