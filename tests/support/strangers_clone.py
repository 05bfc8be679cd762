"""A clone of a foreign repository, with a hostile store in it."""

from __future__ import annotations

import shutil
from pathlib import Path

HASH = "ab" + "0" * 62


def link(place: Path, target: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    elif place.exists():
        place.unlink()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
