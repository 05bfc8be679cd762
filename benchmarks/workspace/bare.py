"""The floor under a full restore: the same files, made by a process that does nothing else.

    python -m benchmarks.workspace.bare TREE DIRECTORY PROCESSES [checked]

It has all contents in memory before the clock starts. Then it makes the directories, and each file
by open, write and close, below a descriptor of its directory. Nothing is read, unpacked, compared
with a hash, written down or synced; but `checked`: then each content is in memory as a store has
it, compressed, and is unpacked and compared with its hash. Of several processes each takes the
files of some directories.
"""

import gc
import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import zstandard

from benchmarks.subprocesses import run_module
from benchmarks.workspace.contenders import Contender, Cost

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
File = tuple[str, int, bytes, bytes]  # its name, mode, content, and the hash if that is compressed


class Bare(Contender):
    """What a contender's restore would take if making the files were all of it."""

    name = "files made bare, one process"
    processes = 1
    more: tuple[str, ...] = ()

    def made(self, directory: Path) -> tuple[Cost, float]:
        """What it took, and how much of the CPU time was the kernel's."""
        wall, user, system = run_module(__name__, [str(self.root), str(directory), str(self.processes), *self.more])
        return (wall, user + system), system


class BareByTwo(Bare):
    name = "files made bare, two processes"
    processes = 2


class Checked(Bare):
    name = "unpacked, hashed and made bare, one process"
    more = ("checked",)


class CheckedByTwo(Checked):
    name = "unpacked, hashed and made bare, two processes"
    processes = 2


FLOORS = (Bare, BareByTwo, Checked, CheckedByTwo)


def make(
    directories: Sequence[tuple[str, int]], files: Sequence[tuple[str, list[File]]], where: int, count: int
) -> None:
    """Directories come after those that they are in."""
    os.umask(0)
    for path, mode in directories:
        os.mkdir(path, mode, dir_fd=where)
    others = []
    for number in range(1, count):
        pid = os.fork()
        if not pid:
            _fill(files[number::count], where)
            os._exit(0)
        others.append(pid)
    _fill(files[::count], where)
    if any(os.waitpid(pid, 0)[1] for pid in others):
        raise ChildProcessError("one of the processes has failed")


def _fill(files: Sequence[tuple[str, list[File]]], where: int) -> None:
    unpacked = zstandard.ZstdDecompressor().decompress
    for path, listed in files:
        directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=where)
        for name, mode, given, digest in listed:
            content = unpacked(given) if digest else given
            if digest and hashlib.sha256(content).digest() != digest:
                raise ValueError(f"{name} has another content")
            file = os.open(name, NEW, mode, dir_fd=directory)
            if content:
                os.write(file, content)
            os.close(file)
        os.close(directory)


def _read(root: Path, *, checked: bool) -> tuple[list[tuple[str, int]], list[tuple[str, list[File]]]]:
    every = sorted(path.relative_to(root) for path in root.rglob("*") if not path.is_symlink())
    directories = [(str(path), (root / path).stat().st_mode & 0o777) for path in every if (root / path).is_dir()]
    files = sorted(path for path in every if (root / path).is_file())
    return directories, [
        (str(above), [_file(root / path, checked=checked) for path in within])
        for above, within in groupby(sorted(files, key=lambda path: (path.parent, path.name)), lambda path: path.parent)
    ]


def _file(path: Path, *, checked: bool) -> File:
    mode, content = path.stat().st_mode & 0o777, path.read_bytes()
    if not (checked and content):
        return path.name, mode, content, b""
    return path.name, mode, zstandard.compress(content), hashlib.sha256(content).digest()


def _times() -> tuple[float, float, float]:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(one.ru_utime for one in usages), sum(one.ru_stime for one in usages)


def main() -> None:
    root, directory, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    directories, files = _read(root, checked="checked" in sys.argv[4:])
    where = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    gc.collect()
    gc.freeze()
    before = _times()
    make(directories, files, where, count)
    print(json.dumps([after - start for start, after in zip(before, _times(), strict=True)]))


if __name__ == "__main__":
    main()
