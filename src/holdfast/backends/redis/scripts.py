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


@cache
def script(name: str) -> Script:
    """The script of that name, with what all of them share before it."""
    folder = resources.files("holdfast.backends.redis") / "scripts"
    source = (folder / "common.lua").read_bytes() + (folder / f"{name}.lua").read_bytes()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())
