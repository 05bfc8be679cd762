"""Where local stores are, and the directories that they make."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import StoreError, UsageError

STORE_DIRECTORY = ".holdfast"


def absolute(path: str | os.PathLike[str]) -> Path:
    """Where a store is, whatever directory the process goes to. A `..` stays: behind a link it leads elsewhere."""
    named = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(named, str):
        raise UsageError(f"a store's path is a {type(named).__name__}: it must be a str or a Path")
    if "\0" in named:
        raise UsageError(f"{named!r:.80} has a NUL in it: no file can be called so")
    try:
        return Path(named).absolute()
    except FileNotFoundError as error:
        raise StoreError(
            f"the store {path} can't be opened: its path is relative, and the current directory was deleted. "
            "Go to another one, or give the whole path"
        ) from error


def make_directory(directory: Path) -> None:
    """Makes a store's directory and its parents, for their owner only. The default one, `.holdfast`, ignores itself in
    git."""
    for one in (*reversed(directory.parents), directory):
        if one.is_dir():
            continue
        one.mkdir(mode=0o700, exist_ok=True)
        if one.name == STORE_DIRECTORY:
            (one / ".gitignore").write_text("*\n")
