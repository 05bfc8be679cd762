"""Fingerprint of a directory tree: everything that a write would change."""

import os
import stat
from pathlib import Path

SQLITES_OWN = ("-shm", "-wal")


def tree_of(root: Path) -> dict[str, tuple[object, ...]]:
    """Each path with mode, inode, links, times of change and content. SQLite's own files beside a
    database are left out, and of the directory that they are in, the times."""
    found: dict[str, tuple[object, ...]] = {}
    for directory, folders, files in os.walk(root):
        has_database = any(name.endswith(".db") for name in files)
        found[directory] = facts(Path(directory), times=not has_database)
        for name in [*folders, *files]:
            path = Path(directory, name)
            if "__pycache__" in path.parts or (has_database and name.endswith(SQLITES_OWN)):
                continue
            if path.is_symlink() or not path.is_dir():
                found[str(path)] = facts(path)
    return found


def facts(path: Path, *, times: bool = True) -> tuple[object, ...]:
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        content: object = str(path.readlink())
    else:
        content = path.read_bytes() if stat.S_ISREG(info.st_mode) else None
    changed = (info.st_mtime_ns, info.st_ctime_ns) if times else ()
    return (info.st_mode, info.st_ino, info.st_nlink if content is not None else 0, *changed, content)
