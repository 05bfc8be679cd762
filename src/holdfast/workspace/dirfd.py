"""Changes to files that are named by a descriptor of their directory.

`backends/root_directory.py` opens the directories, without following links; its names are
re-exported here. The descriptor is used at once and closed: it stays valid even if the name comes
to mean something else.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from holdfast.backends import system_calls
from holdfast.backends.root_directory import (
    DIRECTORY,
    NEW_FILE,
    PATH_ONLY,
    READABLE_DIRECTORY,
    open_directory,
    open_root,
    parent_of,
)

__all__ = [
    "DIRECTORY",
    "NEW_FILE",
    "PATH_ONLY",
    "READABLE_DIRECTORY",
    "open_directory",
    "open_root",
    "parent_of",
    "rename_new",
    "set_mode",
    "sync_file_system",
]


def rename_new(directory: int, source: bytes, target: bytes) -> None:
    """Rename within a directory if `target` does not exist; else raise `FileExistsError`."""
    try:
        return system_calls.rename_noreplace(directory, source, target)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):  # these: this system or file system can't
            raise
    try:
        os.stat(target, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(source, target, src_dir_fd=directory, dst_dir_fd=directory)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)


def set_mode(directory: int, name: bytes, mode: int) -> None:
    """Set the mode of a file or directory, never of what a link leads to. It need not be readable."""
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
    """Write everything on the file system of the root to the disk."""
    try:
        system_calls.syncfs(root)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        os.sync()
