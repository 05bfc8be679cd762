"""The extra `ui` is small: what it installs, and the page's own files."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from holdfast import web

LIMIT = 15_000_000  # bytes on disk


def requirements(name: str, extra: str | None = None) -> set[str]:
    """The distributions that one needs, and those that they need; without those of optional parts."""
    found: set[str] = set()
    for line in metadata.requires(name) or ():
        wanted, _, marker = line.partition(";")
        if ("extra" in marker) if extra is None else (f"extra == '{extra}'" not in marker.replace('"', "'")):
            continue
        needed = re.split(r"[^\w.-]", wanted.strip())[0]
        try:
            metadata.distribution(needed)
        except metadata.PackageNotFoundError:
            continue  # for another Python or system
        found |= {needed, *requirements(needed)}
    return found


def size_of(name: str) -> int:
    files = metadata.files(name) or ()
    paths = [Path(str(one.locate())) for one in files]
    return sum(path.stat().st_size for path in paths if path.exists())


def test_the_extra_takes_at_most_15_mb():
    needed = requirements("holdfast", "ui")
    assert {"starlette", "uvicorn", "anyio", "h11", "click"} <= needed
    own = sum(path.stat().st_size for path in Path(web.__file__).parent.rglob("*") if path.is_file())
    assert 1_000_000 < own + sum(map(size_of, needed)) <= LIMIT
