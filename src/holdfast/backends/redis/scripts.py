"""The Lua scripts: what is done on the server, with nothing in between."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple


class Script(NamedTuple):
    name: str
    source: bytes
    sha1: bytes  # by which the server knows it
    takes_words: bool = False  # what it is asked goes as it is, not packed into one argument


_WITHOUT_COMMON = ("save_all",)


def script(name: str) -> Script:
    return read_all()[name]


@cache
def read_all() -> dict[str, Script]:
    """All scripts by their names, each with what most share before it. Whoever opens a store reads them, before there is
    an event loop that reading files would block."""
    folder = resources.files("holdfast.backends.redis") / "scripts"
    sources = {entry.name.removesuffix(".lua"): entry.read_bytes() for entry in folder.iterdir()}
    shared = sources.pop("common")
    return {name: _script(name, source, shared) for name, source in sources.items()}


def _script(name: str, source: bytes, shared: bytes) -> Script:
    takes_words = name in _WITHOUT_COMMON
    whole = source if takes_words else shared + source
    return Script(name, whole, hashlib.sha1(whole, usedforsecurity=False).hexdigest().encode(), takes_words)
