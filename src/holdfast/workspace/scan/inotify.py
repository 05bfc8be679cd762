"""A watch by inotify: a snapshot costs what changed, not what is there. Linux only.

The events wait in the kernel until a snapshot reads them. Everything is scanned instead if the
queue overflowed, if a directory can't be watched, or on a file system that other machines may
change. A file that is written through `mmap` is reported only when it is closed or synced: as with
the walk, a live writer of that kind is not covered.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
from pathlib import Path

from holdfast.backends import system_calls
from holdfast.workspace.scan.walk import ChangeWatch, Dirty

_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED, _ISDIR = 0x2000, 0x4000, 0x8000, 0x40000000
_ONLYDIR, _EXCL_UNLINK = 0x1000000, 0x4000000
_MASK = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
    | _ONLYDIR | _EXCL_UNLINK
)  # fmt: skip
_EVENT = struct.Struct("iIII")
_BUFFER = 256 * 1024
# Where every change goes through this kernel.
_LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs", "zfs", "bcachefs", "overlay", "ramfs"))


def is_possible(root: Path) -> bool:
    """Return whether the directory can be watched here."""
    return sys.platform == "linux" and _file_system(root) in _LOCAL


def _file_system(root: Path) -> str:
    """Return the type of the file system that the directory is on."""
    try:
        device = root.stat().st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for mount in mounts:
        fields = mount.split(" ")
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "btrfs" if _is_btrfs(mounts, root) else ""


def _is_btrfs(mounts: list[str], root: Path) -> bool:
    """Return a subvolume has a device number of its own that no mount shows: the mount point tells."""
    best, kind = "", ""
    for mount in mounts:
        fields = mount.split(" ")
        point = fields[4]
        if root.is_relative_to(point) and len(point) > len(best):
            best, kind = point, fields[fields.index("-") + 1]
    return kind == "btrfs"


class DirectoryWatch(ChangeWatch):
    """The changes since the last acknowledged snapshot."""

    def __init__(self) -> None:
        self._descriptor = system_calls.inotify_init()
        self._paths: dict[int, bytes] = {}  # by watch
        self._watches: dict[bytes, int] = {}
        self._dirty: dict[bytes, set[bytes]] = {}
        self._replaced: set[bytes] = set()
        self._in_flight: tuple[dict[bytes, set[bytes]], set[bytes]] = ({}, set())
        self._is_complete = False  # every directory is watched, and the cache matches the watch
        self._will_be = False  # once the snapshot is acknowledged
        self.problem: str | None = None

    def add(self, descriptor: int, path: bytes) -> None:
        """Watch a directory, from before it is scanned."""
        if self.problem is not None:
            return
        try:
            watch = system_calls.inotify_add_watch(self._descriptor, f"/proc/self/fd/{descriptor}".encode(), _MASK)
        except OSError as error:
            limit = "the limit of watches is reached (fs.inotify.max_user_watches)"
            self.problem = limit if error.errno == errno.ENOSPC else str(error.strerror)
            return
        self._paths[watch] = path
        self._watches[path] = watch

    def take_changes(self) -> Dirty | None:
        """Return the possible changes, or None if everything must be scanned. `settle` marks them as seen."""
        self._drain()
        self._in_flight = (self._dirty, self._replaced)
        self._dirty, self._replaced = {}, set()
        if not self._is_complete or self.problem is not None:
            return None
        names, replaced = self._in_flight
        return Dirty({path: frozenset(of_path) for path, of_path in names.items()}, frozenset(replaced))

    def note_full_scan(self) -> None:
        """Note that everything was scanned, each directory after it was watched."""
        self._will_be = self.problem is None

    def settle(self, *, acknowledged: bool) -> None:
        names, replaced = self._in_flight
        self._in_flight = ({}, set())
        if acknowledged:
            self._is_complete = self._is_complete or self._will_be
        else:
            for path, of_path in names.items():
                self._dirty.setdefault(path, set()).update(of_path)
            self._replaced |= replaced
        self._will_be = False

    def invalidate(self) -> None:
        """Forget that the watch is complete: the next scan sees everything."""
        self._is_complete = False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _drain(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, _BUFFER)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, size = _EVENT.unpack_from(data, at)
                name = data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0")
                at += _EVENT.size + size
                self._note(watch, mask, name)

    def _note(self, watch: int, mask: int, name: bytes) -> None:
        if mask & (_OVERFLOW | _UNMOUNT):
            self._is_complete = False
            return
        path = self._paths.get(watch)
        if mask & _IGNORED:
            if path is not None and self._watches.get(path) == watch:
                del self._watches[path]
            self._paths.pop(watch, None)
            return
        if path is None:
            return
        if not name:
            if mask & (_MOVE_SELF | _DELETE_SELF) and not path:
                self._is_complete = False  # the root itself went elsewhere
            return
        self._dirty.setdefault(path, set()).add(name)
        if mask & _ISDIR and mask & (_MOVED_FROM | _MOVED_TO | _CREATE | _DELETE):
            below = path + b"/" + name if path else name
            self._forget_below(below)
            self._replaced.add(below)

    def _forget_below(self, path: bytes) -> None:
        """Drop the watches below a removed or replaced directory: their names are wrong."""
        prefix = path + b"/"
        for known in [item for item in self._watches if item == path or item.startswith(prefix)]:
            watch = self._watches.pop(known)
            self._paths.pop(watch, None)
            with contextlib.suppress(OSError):  # the kernel has removed it with the directory
                system_calls.inotify_rm_watch(self._descriptor, watch)
