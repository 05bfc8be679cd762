"""Trees of files for tests: as entries, on a disk, and drawn by Hypothesis."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from hypothesis import strategies as st

from holdfast.model.snapshot import FileChange, FileEntry

Content = tuple[str, int, bytes]  # kind, mode, bytes or target
Tree = dict[bytes, Content]

NAMES = [b"a", b"b", b"A", b"c.txt", b"dir", b"\xff\xfe", "é".encode(), "é".encode(), b"with space", b"-n"]
DIRECTORY_MODES = (0o755, 0o700, 0o750, 0o2775)
FILE_MODES = (0o644, 0o600, 0o444, 0o755, 0o750, 0o4711)


def entry(path: bytes, content: Content) -> FileEntry:
    kind, mode, data = content
    if kind == "file":
        return FileEntry(path, "file", mode, len(data), hashlib.sha256(data).digest())
    if kind == "dir":
        return FileEntry(path, "dir", mode, 0, b"")
    return FileEntry(path, "symlink", 0o777, len(data), data)


def entries(tree: Tree) -> dict[bytes, FileEntry]:
    return {path: entry(path, content) for path, content in tree.items()}


def changes(before: Mapping[bytes, FileEntry], after: Mapping[bytes, FileEntry]) -> list[FileChange]:
    return [
        FileChange(path, before.get(path), after.get(path))
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]


def put(root: Path, tree: Tree) -> None:
    """Makes these files; what is there of other names stays."""
    top = os.fsencode(root)
    for path in sorted(tree):
        kind, mode, data = tree[path]
        place = os.path.join(top, path)
        if kind == "dir":
            os.mkdir(place)
        elif kind == "symlink":
            os.symlink(data, place)
        else:
            with open(place, "wb") as file:
                file.write(data)
            os.chmod(place, mode)
    for path in sorted(tree, reverse=True):
        if tree[path][0] == "dir":
            os.chmod(os.path.join(top, path), tree[path][1])


def on_disk(root: Path | bytes, without: Iterable[bytes] = ()) -> Tree:
    """Everything below a directory, exactly."""
    top = os.fsencode(root)
    found: Tree = {}
    waiting = [b""]
    while waiting:
        above = waiting.pop()
        for name in os.listdir(os.path.join(top, above)):
            path = name if not above else above + b"/" + name
            if path in without:
                continue
            place = os.path.join(top, path)
            there = os.lstat(place)
            mode = stat.S_IMODE(there.st_mode)
            if stat.S_ISDIR(there.st_mode):
                found[path] = ("dir", mode, b"")
                waiting.append(path)
            elif stat.S_ISLNK(there.st_mode):
                found[path] = ("symlink", 0o777, os.readlink(place))
            elif stat.S_ISREG(there.st_mode):
                found[path] = ("file", mode, Path(os.fsdecode(place)).read_bytes())
            else:
                found[path] = ("special", stat.S_IFMT(there.st_mode), b"")
    return found


def _leaves() -> st.SearchStrategy[Content]:
    files = st.tuples(
        st.just("file"), st.sampled_from(FILE_MODES), st.sampled_from([b"", b"one", b"two\r\n", b"\0" * 9])
    )
    links = st.tuples(st.just("symlink"), st.just(0o777), st.sampled_from([b"a", b"../x", b"/etc/passwd", b"\xff"]))
    return st.one_of(files, links)


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Tree:
    """A small tree; two of them have many paths in common, often as different kinds."""
    found: Tree = {}

    def fill(above: bytes, left: int) -> None:
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True)):
            path = above + name
            if left and draw(st.booleans()):
                found[path] = ("dir", draw(st.sampled_from(DIRECTORY_MODES)), b"")
                fill(path + b"/", left - 1)
            else:
                found[path] = draw(_leaves())

    fill(b"", depth)
    return found
