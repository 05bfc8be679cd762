"""The directories that local stores make."""

from __future__ import annotations

from pathlib import Path

STORE_DIRECTORY = ".holdfast"


def make_directory(directory: Path) -> None:
    """Makes a store's directory and its parents, for their owner only. The default one, `.holdfast`, ignores itself in
    git."""
    for one in (*reversed(directory.parents), directory):
        if one.is_dir():
            continue
        one.mkdir(mode=0o700, exist_ok=True)
        if one.name == STORE_DIRECTORY:
            (one / ".gitignore").write_text("*\n")
