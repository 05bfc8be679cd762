"""A fixed restore, which tests kill at each of its system calls.

    python restore_story.py STORE ROOT

Makes a directory, takes a snapshot, changes everything, takes another one, says "changed", restores
the first, says "done".
"""

from __future__ import annotations

import sys
from pathlib import Path

import restore_store
from restore_trees import Tree, put

FIRST: Tree = {
    b"edited": ("file", 0o600, b"one"),
    b"removed": ("file", 0o444, b"was here"),
    b"dir": ("dir", 0o700, b""),
    b"dir/script": ("file", 0o750, b"#!/bin/sh\n"),
    b"link": ("symlink", 0o777, b"edited"),
    b"swap": ("dir", 0o755, b""),
    b"swap/inside": ("file", 0o644, b"in a directory"),
    b"turned": ("file", 0o644, b"a file"),
}


def wreck(root: Path) -> None:
    (root / "edited").write_bytes(b"two")
    (root / "removed").unlink()
    (root / "new").mkdir()
    (root / "new" / "file").write_bytes(b"new")
    (root / "swap" / "inside").unlink()
    (root / "swap").rmdir()
    (root / "swap").write_bytes(b"a file now")
    (root / "link").unlink()
    (root / "link").symlink_to("elsewhere")
    (root / "turned").unlink()
    (root / "turned").mkdir()
    (root / "turned" / "below").write_bytes(b"below")
    (root / "dir").chmod(0o755)


def main() -> None:
    store, root = sys.argv[1], Path(sys.argv[2])
    root.mkdir()
    put(root, FIRST)
    directory = restore_store.open_directory(store, root)
    first = directory.snapshot()
    wreck(root)
    second = directory.snapshot()
    print("changed", restore_store.name(first), restore_store.name(second), flush=True)
    directory.restore(first)
    print("done", flush=True)


if __name__ == "__main__":
    main()
