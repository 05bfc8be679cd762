"""The stat pass names exactly the directories that changed: the first time and when a process scans again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from trees import remove, tick, write

from holdfast.workspace.scan import stat_pass
from holdfast.workspace.scan.stat_cache import CachedDirectory, File, StatCache

MANY = 40
FIRST, MIDDLE, LAST = 0, MANY // 2, MANY - 1


@pytest.fixture
def known(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for number in range(MANY):
        write(root, b"deep/down/many/f%d" % number, b"%d" % number)
    for path in (b"a/f", b"a/b/f", b"a/b/c/f", b"a/b/c/\xff/f", b"a/b/g", b"ruled/.gitignore", b"ruled/in/f", b"top"):
        write(root, path, b"x\n")
    os.symlink("nowhere", root / "a" / "link")
    (root / "empty").mkdir()
    return root


def seen(root: Path) -> StatCache:
    """All of it, as it is now."""
    cache = StatCache()
    for where, directories, files in os.walk(os.fsencode(root)):
        now = os.lstat(where)
        one = CachedDirectory(now.st_ctime_ns, now.st_ino, now.st_mode, b"")
        for name in files:
            now = os.lstat(os.path.join(where, name))
            one.files[name] = File(now.st_ctime_ns, now.st_size, now.st_ino, now.st_mode, b"")
        one.directories = dict.fromkeys(directories, 0o40755)
        path = os.path.relpath(where, os.fsencode(root))
        cache.put(b"" if path == b"." else path, one)
    tick(root)  # what is done from now on has another time
    return cache


def differing(root: Path, cache: StatCache) -> set[bytes]:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = stat_pass.changed_directories(descriptor, cache, lambda: None)
    finally:
        os.close(descriptor)
    assert len(set(found)) == len(found)
    return set(found)


def _replace(path: Path) -> None:
    """Another file of the same bytes, mode and times."""
    now = path.stat()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.chmod(now.st_mode & 0o7777)
    os.utime(other, ns=(now.st_atime_ns, now.st_mtime_ns))
    other.replace(path)


def _swap_for_link(root: Path) -> None:
    (root / "a" / "b").rename(root / "a" / "moved")
    os.symlink("moved", root / "a" / "b")


CHANGES = {
    "nothing": (lambda root: None, set()),
    "bytes": (lambda root: (root / "a/b/c/f").write_bytes(b"y\n"), {b"a/b/c"}),
    "mode": (lambda root: (root / "a/b/c/f").chmod(0o640), {b"a/b/c"}),
    "another inode": (lambda root: _replace(root / "a/b/f"), {b"a/b"}),
    "a name more": (lambda root: write(root, b"a/b/c/new", b""), {b"a/b/c"}),
    "a name less": (lambda root: (root / "a/b/g").unlink(), {b"a/b"}),
    "a link": (lambda root: write(root, b"a/link", b"x"), {b"a"}),
    "of a directory, the mode": (lambda root: (root / "empty").chmod(0o750), {b"empty"}),
    "a directory less": (lambda root: remove(root, b"empty"), {b"empty"}),
    "a directory that was opened less": (lambda root: remove(root, b"deep/down"),
                                         {b"deep", b"deep/down", b"deep/down/many"}),
    "a directory that is a link": (_swap_for_link, {b"a", b"a/b"}),
    **{
        f"of many, number {number}": (
            lambda root, name=f"f{number}": (root / "deep/down/many" / name).write_bytes(b"y"), {b"deep/down/many"})
        for number in (FIRST, MIDDLE, LAST)
    },
    "of many, all": (lambda root: [one.unlink() for one in (root / "deep/down/many").iterdir()], {b"deep/down/many"}),
    "here and there": (
        lambda root: [(root / name).write_bytes(b"y") for name in ("a/f", "deep/down/many/f3", "a/b/c/f")],
        {b"a", b"deep/down/many", b"a/b/c"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("looks", ["first", "again"])
@pytest.mark.parametrize("change", CHANGES)
def test_exactly_what_changed_is_told(known: Path, change: str, looks: str) -> None:
    do, expected = CHANGES[change]
    always = {b"ruled"}  # it decides about what is left out
    cache = seen(known)
    if looks != "first":
        assert differing(known, cache) == always
        assert differing(known, cache) == always
    do(known)
    assert differing(known, cache) == always | expected
    if change != "nothing":
        assert differing(known, cache) == always | expected  # as long as nobody says otherwise
        for path, directory in seen(known).directories.items():
            cache.put(path, directory)
        for path in expected:
            if not (known / os.fsdecode(path)).is_dir() or (known / os.fsdecode(path)).is_symlink():
                gone = [one for one in cache.directories if one == path or one.startswith(path + b"/")]
                for one in gone:
                    cache.put(one, None)
        assert differing(known, cache) == always


def test_what_is_too_young_to_be_told_by_its_time_differs_in_every_look(known: Path) -> None:
    cache = seen(known)
    here = cache.directories[b"a/b"]
    here.files[b"g"] = here.files[b"g"]._replace(ctime_ns=0)
    for _ in range(3):
        assert differing(known, cache) == {b"ruled", b"a/b"}


def test_the_largest_and_the_oldest_are_told_from_others(known: Path) -> None:
    """A sparse file of more bytes than 32 bits count, and a time before 1970 as far as the file system keeps one."""
    os.truncate(known / "a" / "f", (1 << 33) + 1)
    os.utime(known / "a" / "f", ns=(-1_500_000_000, -1_500_000_000))
    cache = seen(known)
    for _ in range(3):
        assert differing(known, cache) == {b"ruled"}
    os.truncate(known / "a" / "f", 1)
    assert differing(known, cache) == {b"ruled", b"a"}
