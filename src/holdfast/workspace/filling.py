"""Files that are new, in directories that nobody sees yet: the part of a restore that workers can do (`workers.py`).

Each content comes framed, as the store has it, and is checked here against its hash before it is written. Directories are opened
below the root, and no link is followed on the way there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from holdfast.objects import frame
from holdfast.objects.checking import checked
from holdfast.workspace import descriptors

Written = tuple[int, int, int]  # inode, size and mtime of a file as we left it
Frames = Sequence[tuple[bytes, bytes]]  # hashes and frames
# Of which directory, its name, mode, size, and of which frame; -1 if it is empty.
File = tuple[int, bytes, int, int, int]
Request = tuple[Frames, Sequence[bytes], Sequence[File]]


def begin(setup: object, given: Sequence[int]) -> Callable[[Request], list[Written]]:
    """The first of the descriptors is the root's."""
    root = given[0]
    del setup

    def fill(request: Request) -> list[Written]:
        frames, places, files = request
        inflate = frame.inflater()
        contents = [checked(hash_, framed, inflate) for hash_, framed in frames]
        contents.append(b"")  # the last one: that of empty files
        written: list[Written] = []
        opened, at = -1, -1
        try:
            for place, name, mode, size, number in files:
                if place != at:
                    if opened >= 0:
                        os.close(opened)
                        opened = -1
                    opened, at = descriptors.open_directory(root, places[place]), place
                data = contents[number]
                if len(data) != size:
                    raise ValueError(f"{name!r}: {len(data)} bytes came for {size}")
                written.append(make_file(opened, name, mode, data))
        finally:
            if opened >= 0:
                os.close(opened)
        return written

    return fill


def make_file(directory: int, name: bytes, mode: int, data: bytes) -> Written:
    """A file that was not there, in a directory that nobody sees yet."""
    opened = os.open(name, descriptors.NEW_FILE, mode & 0o777, dir_fd=directory)
    try:
        left = data
        while left and (written := os.write(opened, left)) < len(left):
            left = left[written:]
        there = os.fstat(opened)
        if there.st_mode != stat.S_IFREG | mode:  # what the umask took away
            os.fchmod(opened, mode)
    finally:
        os.close(opened)
    return there.st_ino, there.st_size, there.st_mtime_ns
