"""Paths of local stores, and the directories that they create."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from holdfast.errors import StoreError, UsageError

STORE_DIRECTORY = ".holdfast"


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a store, which stays valid when the process changes directory.

    A `..` stays: behind a link it leads elsewhere.
    """
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
    """Create a store's directory and its parents, for their owner only.

    The default directory, `.holdfast`, ignores itself in git.
    """
    for parent in (*reversed(directory.parents), directory):
        if parent.is_dir():
            continue
        parent.mkdir(mode=0o700, exist_ok=True)
        if parent.name == STORE_DIRECTORY:
            keep_out_of_git(parent)


def keep_out_of_git(directory: Path) -> None:
    """Make git ignore a whole directory, unless a file there says otherwise. A link is not followed."""
    with contextlib.suppress(FileExistsError), (directory / ".gitignore").open("x", encoding="utf-8") as file:
        file.write("*\n")


def refuse_links(directory: str | os.PathLike[str], *names: str) -> None:
    """Raise `UsageError` if one of these names, each within the one before, is a symbolic link.

    This protects a store that was found by its default name: a directory from elsewhere must not
    redirect it to another store.
    """
    place = Path(directory)
    for name in names:
        place /= name
        if place.is_symlink():
            raise UsageError(
                f"{place} is a symbolic link: a store that is found by its default name must be in its directory "
                "itself. "
                "If you mean the store that the link leads to, name it by its path (--store, or the path of the client)"
            )
