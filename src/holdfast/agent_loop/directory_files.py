"""Files of one directory, named by paths that a model wrote.

A path can't leave the directory: `..` is refused, and no symbolic link is followed, on the way or
at its end (`backends/root_directory.py`). A file is replaced as a whole or not at all. Whatever is
refused raises `EffectNotDoneError`: nothing was changed.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.backends.root_directory import READABLE_FILE
from holdfast.errors import EffectNotDoneError
from holdfast.model.control_files import is_control_name
from holdfast.workspace import dirfd
from holdfast.workspace.limits import TEMPORARY

_ODD = (errno.ELOOP, errno.ENOTDIR, errno.EXDEV, errno.ENXIO, errno.EMLINK)


class DirectoryFiles:
    """The files below a directory."""

    def __init__(self, directory: str, largest: int) -> None:
        self._directory = directory
        self._largest = largest

    def read(self, path: str) -> bytes:
        """Return the content of a regular file."""
        with self._root() as root, _explain_errors(path):
            with dirfd.parent_of(root, self._relative(path)) as (directory, name):
                descriptor = os.open(name, READABLE_FILE, dir_fd=directory)
            try:
                _refuse_odd(path, os.fstat(descriptor).st_mode)
                with open(descriptor, "rb", closefd=False) as file:
                    data = file.read(self._largest + 1)
            finally:
                os.close(descriptor)
        self._refuse_large(path, len(data))
        return data

    def write(self, path: str, data: bytes) -> None:
        """Replace a file, or make it, with the directories it is in."""
        self._refuse_large(path, len(data))
        relative = self._relative(path)
        control = next((name for name in relative.split(b"/") if is_control_name(name)), None)
        if control is not None:
            raise EffectNotDoneError(f"{path!r:.200} is below {os.fsdecode(control)!r}, which is not written to")
        with self._root() as root, _explain_errors(path):
            _make_parents(root, relative)
            with dirfd.parent_of(root, relative) as (directory, name):
                _replace(directory, name, path, data)

    @contextmanager
    def _root(self) -> Iterator[int]:
        try:
            root = dirfd.open_root(self._directory)
        except OSError as error:
            raise EffectNotDoneError(
                f"the directory {self._directory!r:.200} can't be opened: {error.strerror}"
            ) from error
        try:
            yield root
        finally:
            os.close(root)

    def _relative(self, path: str) -> bytes:
        """Return the path relative to the directory; an absolute one must be below the directory."""
        try:
            given = os.fsencode(path)
        except ValueError:
            raise EffectNotDoneError(f"{path!r:.200} is no path: it has characters that no file's name has") from None
        if given.startswith(b"/"):
            given = self._relate_path(given, path)
        names = [name for name in given.split(b"/") if name not in (b"", b".")]
        if b".." in names:
            raise EffectNotDoneError(f"{path!r:.200} has '..' in it: give the path from the directory on")
        if not names or b"\0" in given:
            raise EffectNotDoneError(f"{path!r:.200} names no file")
        return b"/".join(names)

    def _relate_path(self, given: bytes, path: str) -> bytes:
        """Return an absolute path relative to the directory, as given or with its links resolved."""
        for known in (os.path.abspath(self._directory), os.path.realpath(self._directory)):  # noqa: PTH100 - as text
            root = os.fsencode(known).rstrip(b"/") + b"/"
            if given.startswith(root):
                return given[len(root) :]
        raise EffectNotDoneError(f"{path!r:.200} is not below the directory of this tool: give a relative path")

    def _refuse_large(self, path: str, size: int) -> None:
        if size > self._largest:
            raise EffectNotDoneError(
                f"{path!r:.200} is larger than {self._largest} bytes: that is the limit of this tool"
            )


def _make_parents(root: int, path: bytes) -> None:
    at = path.find(b"/")
    while at >= 0:
        with dirfd.parent_of(root, path[:at]) as (directory, name), suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
        at = path.find(b"/", at + 1)


def _replace(directory: int, name: bytes, path: str, data: bytes) -> None:
    mode: int | None = None
    with suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    if mode is not None:
        _refuse_odd(path, mode)
    temporary = TEMPORARY + secrets.token_hex(6).encode() + b"-0"  # no snapshot takes such names along
    descriptor = os.open(temporary, dirfd.NEW_FILE, 0o666, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(descriptor)  # the answer of the call will be durable: so is what it says
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _refuse_odd(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise EffectNotDoneError(f"{path!r:.200} is a directory")
    if not stat.S_ISREG(mode):
        raise EffectNotDoneError(f"{path!r:.200} is no regular file: links, devices and the like are not followed")


@contextmanager
def _explain_errors(path: str) -> Iterator[None]:
    """Say in words what a system call refused."""
    try:
        yield
    except FileNotFoundError:
        raise EffectNotDoneError(f"there is no file {path!r:.200}") from None
    except OSError as error:
        if error.errno in _ODD:
            why = "a symbolic link, or what is no directory, is on the way, and is not followed"
        else:
            why = error.strerror or repr(error)
        raise EffectNotDoneError(f"{path!r:.200}: {why}") from error
