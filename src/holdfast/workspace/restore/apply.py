"""The actions of a restore plan, carried out in a directory one by one.

Before a path is touched, it is compared with the plan: a file that has changed since is never
overwritten and never deleted, but raises `ChangedUnder`. A file is written under a temporary name
next to its path and renamed, so it is the old one or the new one, whole. A new directory is filled
under a temporary name, too, and renamed at the end with everything in it: its files need no renames
of their own. This module decides nothing and does not read the store.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from holdfast.errors import CorruptError
from holdfast.model.file_restore_plan import FileAction, list_parents
from holdfast.model.snapshot import FileEntry
from holdfast.workspace import dirfd
from holdfast.workspace.limits import TEMPORARY

READABLE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)

NO_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)

T = TypeVar("T")
Written = tuple[int, int, int]  # inode, size and mtime of a file as we left it
IsContent = Callable[[int, FileEntry], bool]  # whether the file of a descriptor has the content of an entry
StatKey = tuple[int, int, int, int]  # ctime_ns, size, inode, mode: equal only if the file is unchanged


class Inodes(Protocol):
    """How each file's inode looked when it was read; None where that is not known."""

    def get(self, path: bytes, /) -> StatKey | None: ...


class ChangedUnder(Exception):  # noqa: N818 - a signal between layers, not an error people see
    """A path that differs from the state the plan was made for. It was left as it is."""

    def __init__(self, path: bytes, found: str) -> None:
        super().__init__(f"{path!r:.120}: {found}")
        self.path = path
        self.found = found


class NotEmpty(ChangedUnder):
    """A directory that was to go holds something that no snapshot has."""


@dataclass(slots=True)
class UnfinishedFile:
    """A file that is being written under a temporary name."""

    action: FileAction
    descriptor: int
    name: bytes
    size: int = 0


class Applier:
    """The writer of files below one root.

    `token` is in the names of its temporary files, which tells them from all others.
    """

    def __init__(
        self, root: int, token: str, is_content: IsContent, known: Inodes | None = None, *, direct: bool = False
    ) -> None:
        """Make an applier; `direct` writes without renames, for a directory under a temporary name."""
        self.root = root
        self.token = token
        self._direct = direct
        self._token = TEMPORARY + token.encode() + b"-"
        self._is_content = is_content
        self._known = known
        self._count = 0
        self._modes: dict[bytes, int] = {}  # the modes that directories get at the end
        self._was: dict[bytes, int] = {}  # the modes of directories that were made accessible meanwhile
        self._made: dict[bytes, bytes] = {}  # directories of our own, and where they are until the end
        self._aside: dict[bytes, bytes] = {}  # those of them that are to be renamed, and their names until then
        self._open: tuple[bytes, int] | None = None  # the one of them that was used last, which stays open
        self._written: dict[bytes, Written] = {}  # files as we left them

    def close(self) -> None:
        """Close the open descriptors."""
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    # -- one action each ---------------------------------------------------------------------------------------------

    def delete(self, action: FileAction) -> None:
        assert action.before is not None
        with self._parent(action.path) as (directory, name):
            self._expect(directory, name, action)
            if action.before.kind != "dir":
                self._retry(action.path, lambda: os.unlink(name, dir_fd=directory))
                return
            try:
                self._retry(action.path, lambda: os.rmdir(name, dir_fd=directory))
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise NotEmpty(action.path, "it holds something that no snapshot has") from None
                raise
        self._modes.pop(action.path, None)
        self._was.pop(action.path, None)

    def make_directory(self, action: FileAction) -> None:
        assert action.after is not None
        mode = action.after.mode
        is_open = mode & 0o700 == 0o700
        at_first = mode & 0o777 if is_open else 0o700  # no access that the final mode does not give
        above = action.path.rpartition(b"/")[0]
        with self._parent(action.path) as (directory, name):
            is_aside = not (self._direct or above in self._made)
            made = self._temporary_name() if is_aside else name
            try:
                self._retry(action.path, lambda: os.mkdir(made, at_first, dir_fd=directory))
            except FileExistsError:
                raise ChangedUnder(action.path, "there is something now") from None
            if not is_open:
                self._modes[action.path] = mode
            elif stat.S_IMODE(os.stat(made, dir_fd=directory, follow_symlinks=False).st_mode) != mode:
                dirfd.set_mode(directory, made, mode)  # bits that the umask removed, and other ones
        if is_aside:
            self._aside[action.path] = made
        base = self._made.get(above, above)
        self._made[action.path] = base + b"/" + made if base else made

    def change_mode(self, action: FileAction) -> None:
        assert action.after is not None
        with self._parent(action.path) as (directory, name):
            self._expect(directory, name, action)
            if action.after.kind == "dir":
                self._modes[action.path] = action.after.mode  # at the end, with the others
            else:
                dirfd.set_mode(directory, name, action.after.mode)

    def make_link(self, action: FileAction) -> None:
        assert action.after is not None
        with self._parent(action.path) as (directory, name):
            temporary = self._temporary_name()
            target = action.after.content
            self._retry(action.path, lambda: os.symlink(target, temporary, dir_fd=directory))
            self._put_in_place(directory, temporary, name, action)

    def begin_file(self, action: FileAction) -> UnfinishedFile:
        with self._parent(action.path) as (directory, _):
            name = self._temporary_name()
            opened = self._retry(action.path, lambda: os.open(name, dirfd.NEW_FILE, 0o600, dir_fd=directory))
            return UnfinishedFile(action, opened, name)

    @staticmethod
    def write(unfinished: UnfinishedFile, data: bytes) -> None:
        view = memoryview(data)
        unfinished.size += len(view)
        while view:
            view = view[os.write(unfinished.descriptor, view) :]

    @staticmethod
    def leave_hole(unfinished: UnfinishedFile, size: int) -> None:
        """Leave a hole of so many zeros."""
        unfinished.size += size
        os.lseek(unfinished.descriptor, size, os.SEEK_CUR)

    def finish_file(self, unfinished: UnfinishedFile) -> None:
        action, after = unfinished.action, unfinished.action.after
        assert after is not None
        try:
            if unfinished.size != after.size:
                raise CorruptError(
                    f"{action.path!r:.120} is to have {after.size} bytes, and its content has {unfinished.size}: run "
                    "`verify`"
                )
            os.ftruncate(unfinished.descriptor, unfinished.size)  # a hole at the end has not made it longer
            with self._parent(action.path) as (directory, name):
                self._keep_owner(unfinished, directory, name)
                os.fchmod(unfinished.descriptor, after.mode)  # after the owner: changing that clears bits
                self._put_in_place(directory, unfinished.name, name, action)
                self._note(action.path, unfinished.descriptor)
        except BaseException:
            self.abandon(unfinished)
            raise
        os.close(unfinished.descriptor)

    def abandon(self, unfinished: UnfinishedFile) -> None:
        os.close(unfinished.descriptor)
        with self._parent(unfinished.action.path) as (directory, _):
            _unlink_existing(directory, unfinished.name)

    def put_file(self, action: FileAction, data: bytes) -> None:
        """Write a file whose content is in memory."""
        _, path, _, after = action
        assert after is not None
        if len(data) != after.size:
            raise CorruptError(
                f"{path!r:.120} is to have {after.size} bytes, and its content has {len(data)}: run `verify`"
            )
        above, _, last = path.rpartition(b"/")
        if above in self._made or (self._direct and not above):
            self._written[path] = _make_file(self._open_own_directory(above), last, after.mode, data)
            return
        with self._parent(action.path) as (directory, name):
            written = self._temporary_name()
            opened = self._retry(action.path, lambda: os.open(written, dirfd.NEW_FILE, 0o600, dir_fd=directory))
            try:
                unfinished = UnfinishedFile(action, opened, written)
                self.write(unfinished, data)
                self._keep_owner(unfinished, directory, name)
                if after.mode != 0o600:
                    os.fchmod(opened, after.mode)
                self._put_in_place(directory, written, name, action)
                self._note(action.path, opened)
            except BaseException:
                _unlink_existing(directory, written)
                raise
            finally:
                os.close(opened)

    def _open_own_directory(self, above: bytes) -> int:
        """Return a directory of our own. It stays open until another one is requested."""
        kept = self._open
        if kept is not None and kept[0] == above:
            return kept[1]
        if not above:
            return self.root
        opened = dirfd.open_directory(self.root, self._made[above])
        self.close()
        self._open = (above, opened)
        return opened

    def put_copy(self, action: FileAction, copy_into: Callable[[FileEntry, int], bool]) -> bool:
        """Return a file that is copied from another one on the disk; False if it could not be."""
        assert action.after is not None
        unfinished = self.begin_file(action)
        try:
            is_copied = copy_into(action.after, unfinished.descriptor)
        except BaseException:
            self.abandon(unfinished)
            raise
        if not is_copied:
            self.abandon(unfinished)
            return False
        unfinished.size = action.after.size
        self.finish_file(unfinished)
        return True

    # -- the end ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Rename new directories to their places, and set all modes, from below."""
        self.close()
        for path, made in self._aside.items():
            with self._parent(path) as (directory, name):
                self._retry(path, functools.partial(self._reveal, directory, made, name, path))
        self._aside.clear()
        self._made = {path: path for path in self._made}
        for path in sorted(self._modes, reverse=True):
            with self._parent(path) as (directory, name):
                dirfd.set_mode(directory, name, self._modes[path])
        self._modes.clear()
        self._was.clear()
        self.close()

    def sync(self) -> None:
        """Sync everything that was written so far. It may be called while files are made in another thread."""
        dirfd.sync_file_system(self.root)

    @staticmethod
    def _reveal(directory: int, made: bytes, name: bytes, path: bytes) -> None:
        try:
            dirfd.rename_new(directory, made, name)
        except FileExistsError:
            raise ChangedUnder(path, "there is something now") from None

    def find_wrong(self, actions: Iterable[FileAction]) -> list[bytes]:
        """Return the touched paths that are not as the plan wants them."""
        final = {path: after for _, path, _, after in actions}
        return sorted(
            path for path, wanted in final.items() if not (self._is_ours(path, wanted) or self.is_at(path, wanted))
        )

    def _note(self, path: bytes, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._written[path] = (status.st_ino, status.st_size, status.st_mtime_ns)

    def _is_ours(self, path: bytes, wanted: FileEntry | None) -> bool:
        """Return whether the file or directory is the very one that we wrote, unchanged since.

        Its content came checked from the store, and need not be read again.
        """
        written = self._written.get(path)
        if wanted is None or (written is None and path not in self._made):
            return False
        try:
            status = os.stat(path, dir_fd=self.root, follow_symlinks=False)
        except OSError:
            return False
        _, kind, mode, _, _ = wanted
        if kind == "dir":
            return status.st_mode == stat.S_IFDIR | mode and path in self._made
        return status.st_mode == stat.S_IFREG | mode and written == (status.st_ino, status.st_size, status.st_mtime_ns)

    def is_at(self, path: bytes, wanted: FileEntry | None) -> bool:
        """Return whether exactly this is at the path (None: nothing)."""
        try:
            with dirfd.parent_of(self.root, path) as (directory, name):
                return self._describe_found(directory, name, path, wanted) == ""
        except (FileNotFoundError, NotADirectoryError):
            return wanted is None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link is on the way
                return wanted is None
            raise

    def sweep(self, paths: Iterable[bytes]) -> int:
        """Remove this token's temporary files and directories next to these paths, left by a dead process."""
        swept = 0
        for above in sorted({path.rpartition(b"/")[0] for path in paths}):
            try:
                listed = os.dup(self.root) if not above else dirfd.open_directory(self.root, above)
            except OSError:
                continue  # there is no such directory (any more), so there is nothing of ours in it
            try:
                # A descriptor that only names its directory can't be listed.
                readable = os.open(b".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=listed)
                try:
                    names = [os.fsencode(found.name) for found in os.scandir(readable)]
                finally:
                    os.close(readable)
                for name in names:
                    if name.startswith(self._token):
                        swept += _remove(listed, name)
            finally:
                os.close(listed)
        return swept

    # -- within --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the directory of a path, as a descriptor, and the name in it."""
        above, _, name = path.rpartition(b"/")
        if not above:
            yield self.root, name
            return
        if self._open is not None and self._open[0] == above:
            yield self._open[1], name
            return
        try:
            place = self._made.get(above, above)
            descriptor = self._retry(path, lambda: dirfd.open_directory(self.root, place))
        except OSError as error:
            if error.errno in NO_DIRECTORY:
                raise ChangedUnder(path, "the directory that it is in is none any more") from None
            raise
        if above in self._made:
            self.close()
            self._open = (above, descriptor)
            yield descriptor, name
            return
        try:
            yield descriptor, name
        finally:
            os.close(descriptor)

    def _retry(self, path: bytes, call: Callable[[], T]) -> T:
        """Do it again after the directories above were made accessible, if they were not."""
        try:
            return call()
        except PermissionError:
            if not self._make_accessible(path):
                raise
        return call()

    def _make_accessible(self, path: bytes) -> bool:
        """Let us into the directories above, and write there, until the end. True if that was missing."""
        changed = False
        for above in reversed(list(list_parents(path))):
            with dirfd.parent_of(self.root, above) as (directory, name):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                mode = stat.S_IMODE(status.st_mode)
                if not stat.S_ISDIR(status.st_mode) or mode & 0o700 == 0o700 or status.st_uid != os.geteuid():
                    continue
                dirfd.set_mode(directory, name, mode | 0o700)
            self._was.setdefault(above, mode)
            self._modes.setdefault(above, mode)
            changed = True
        return changed

    def _temporary_name(self) -> bytes:
        self._count += 1
        return self._token + str(self._count).encode()

    def _put_in_place(self, directory: int, temporary: bytes, name: bytes, action: FileAction) -> None:
        try:
            if action.before is None:
                try:
                    dirfd.rename_new(directory, temporary, name)
                except FileExistsError:
                    raise ChangedUnder(action.path, "there is something now") from None
            else:
                self._expect(directory, name, action)
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            _unlink_existing(directory, temporary)
            raise

    def _expect(self, directory: int, name: bytes, action: FileAction) -> None:
        found = self._describe_found(directory, name, action.path, action.before)
        if found:
            raise ChangedUnder(action.path, found)

    def _describe_found(self, directory: int, name: bytes, path: bytes, wanted: FileEntry | None) -> str:
        """Describe what is there instead of `wanted`; return "" if that is there."""
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return "" if wanted is None else "it is not there any more"
        if wanted is None:
            return "there is something now"
        kind, mode = _kind(status.st_mode), stat.S_IMODE(status.st_mode)
        if kind != wanted.kind:
            return f"it is now a {kind}"
        if kind == "symlink":
            return "" if os.readlink(name, dir_fd=directory) == wanted.content else "the link leads elsewhere now"
        if kind == "dir":
            mode = self._was.get(path, mode)
        if mode != wanted.mode:
            return f"its mode is now {mode:04o}"
        if kind == "dir":
            return ""
        if status.st_size != wanted.size:
            return "its content has changed"
        key = self._known.get(path) if self._known is not None else None
        if key is not None and key == (status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode):
            return ""
        return "" if self._has_content(directory, name, status, wanted) else "its content has changed"

    def _has_content(self, directory: int, name: bytes, status: os.stat_result, wanted: FileEntry) -> bool:
        unreadable = not status.st_mode & stat.S_IRUSR and os.geteuid() == status.st_uid != 0
        if unreadable:
            dirfd.set_mode(directory, name, stat.S_IMODE(status.st_mode) | stat.S_IRUSR)
        try:
            opened = os.open(name, READABLE, dir_fd=directory)
        finally:
            if unreadable:
                dirfd.set_mode(directory, name, stat.S_IMODE(status.st_mode))
        try:
            return self._is_content(opened, wanted)
        finally:
            os.close(opened)

    @staticmethod
    def _keep_owner(unfinished: UnfinishedFile, directory: int, name: bytes) -> None:
        """Keep the owner of a file that root replaces."""
        if unfinished.action.before is None:
            return
        try:
            was = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return  # reported by the comparison that follows
        now = os.fstat(unfinished.descriptor)
        if (was.st_uid, was.st_gid) != (now.st_uid, now.st_gid):
            try:
                os.fchown(unfinished.descriptor, was.st_uid, was.st_gid)
            except PermissionError:
                return  # its owner becomes the user who restores it


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "symlink" if stat.S_ISLNK(mode) else "special file"


def _remove(directory: int, name: bytes) -> int:
    """Remove a file, or a directory tree, without following links; return the number of files removed."""
    try:
        opened = os.open(name, os.O_RDONLY | dirfd.DIRECTORY & ~dirfd.PATH_ONLY, dir_fd=directory)
    except PermissionError:
        dirfd.set_mode(directory, name, 0o700)
        opened = os.open(name, os.O_RDONLY | dirfd.DIRECTORY & ~dirfd.PATH_ONLY, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return int(_unlink_existing(directory, name))
        if error.errno == errno.ENOENT:
            return 0
        raise
    try:
        names = os.listdir(opened)  # noqa: PTH208 - a descriptor is no path
        removed = sum(_remove(opened, os.fsencode(below)) for below in names)
    finally:
        os.close(opened)
    os.rmdir(name, dir_fd=directory)
    return removed


def _make_file(directory: int, name: bytes, mode: int, data: bytes) -> Written:
    """Make a new file in a directory that is not in its place yet."""
    opened = os.open(name, dirfd.NEW_FILE, mode & 0o777, dir_fd=directory)
    try:
        left = data
        while left and (written := os.write(opened, left)) < len(left):
            left = left[written:]
        status = os.fstat(opened)
        if status.st_mode != stat.S_IFREG | mode:  # bits that the umask removed
            os.fchmod(opened, mode)
    finally:
        os.close(opened)
    return status.st_ino, status.st_size, status.st_mtime_ns


def _unlink_existing(directory: int, name: bytes) -> bool:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True
