"""Unsafe paths: names and links that lead out of a directory or that some system can't hold.

A restore refuses them, or reports them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.model.snapshot import FileEntry

FlagKind = Literal["escapes", "case", "unicode", "reserved", "long"]

RESERVED = re.compile(
    rb"(?:con|prn|aux|nul|com[1-9]|lpt[1-9]) *(?:\.|$)|.*(?:[ .]$|[<>:\"|?*\\\x00-\x1f])", re.IGNORECASE | re.DOTALL
)
NO_NAMES = (b"", b".", b"..")
LONGEST_ON_WINDOWS = 259  # a longer path needs another form there
TOGETHER = 1024  # the number of paths that are checked at once


@dataclass(frozen=True, slots=True)
class Flag:
    """A remark about a path.

    `escapes`: a link that leads out of the root. `case` and `unicode`: the same name as `other` on
    a system that ignores case, or the composition of letters. `reserved` and `long`: not possible
    on Windows.
    """

    kind: FlagKind
    path: bytes
    other: bytes = b""


def explain_unsafe(path: bytes) -> str:
    """Return why a path must never be written, empty if it may be."""
    if not path:
        return "an empty path"
    if b"\0" in path:
        return "a NUL byte in it"
    if path.startswith(b"/"):
        return "it is absolute"
    for name in path.split(b"/"):
        if name in NO_NAMES:
            return "it has an empty name, `.` or `..` in it"
    return ""


def find_unsafe(paths: Sequence[bytes]) -> bytes | None:
    """Return the first of many paths that must never be written, by the rules of `explain_unsafe`.

    They are searched together: between slashes, each kind of unsafe name shows as a few bytes.
    """
    for start in range(0, len(paths), TOGETHER):
        some = paths[start : start + TOGETHER]
        text = b"/" + b"/ /".join(some) + b"/"
        if b"//" in text or b"/./" in text or b"/../" in text or b"\0" in text:
            return next(path for path in some if explain_unsafe(path))
    return None


def flags_of(entries: Iterable[FileEntry], staying: Iterable[bytes] = ()) -> tuple[Flag, ...]:
    """Return the flags of the entries to write, next to the paths that stay."""
    entries = list(entries)
    paths = [entry[0] for entry in entries]
    flags = [
        Flag("escapes", path, content)
        for path, kind, _, _, content in entries
        if kind == "symlink" and is_outside(path, content)
    ]
    flags += [Flag("reserved", path) for path in paths if is_reserved(path.rpartition(b"/")[2])]
    flags += [Flag("long", path) for path in paths if len(path) > LONGEST_ON_WINDOWS]
    return (*flags, *_collisions(paths, list(staying)))


def _collisions(paths: Sequence[bytes], staying: Sequence[bytes]) -> list[Flag]:
    """Return the names that are equal on a system that ignores case, or the composition of letters."""
    every = _fold_all([*staying, *paths])
    if len(set(every)) == len(every):
        return []
    seen = dict(zip(every, staying, strict=False))
    flags: list[Flag] = []
    for path, same in zip(paths, every[len(staying) :], strict=True):
        other = seen.setdefault(same, path)
        if other is not path and other != path:
            flags.append(Flag(_collision(path, other), path, other))
    return flags


def is_outside(path: bytes, target: bytes) -> bool:
    """Return whether a link at `path` names a path outside the root, by its text alone."""
    if target.startswith(b"/"):
        return True
    depth = path.count(b"/")
    for name in target.split(b"/"):
        if name == b"..":
            depth -= 1
            if depth < 0:
                return True
        elif name not in (b"", b"."):
            depth += 1
    return False


def is_reserved(name: bytes) -> bool:
    """Return whether Windows can't have a file of that name."""
    return RESERVED.match(name) is not None


def fold(path: bytes) -> bytes:
    """Return the path as file systems see it that ignore case and the composition of letters."""
    if path.isascii():
        return path.lower()
    text = unicodedata.normalize("NFD", path.decode("utf-8", "surrogateescape"))
    return unicodedata.normalize("NFD", text.casefold()).encode("utf-8", "surrogateescape")


def _fold_all(paths: Sequence[bytes]) -> list[bytes]:
    return list(map(bytes.lower if all(map(bytes.isascii, paths)) else fold, paths))


def _collision(path: bytes, other: bytes) -> FlagKind:
    same_letters = unicodedata.normalize("NFC", path.decode("utf-8", "surrogateescape")) == unicodedata.normalize(
        "NFC", other.decode("utf-8", "surrogateescape")
    )
    return "unicode" if same_letters else "case"
