"""Names that lead out of a directory, and names and links that are a nuisance on some system: for a restore to refuse, or to
say."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from holdfast.model.workspace import Entry

FlagKind = Literal["escapes", "case", "unicode", "reserved", "long"]

RESERVED = re.compile(
    rb"(?:con|prn|aux|nul|com[1-9]|lpt[1-9]) *(?:\.|$)|.*(?:[ .]$|[<>:\"|?*\\\x00-\x1f])", re.IGNORECASE | re.DOTALL
)
NO_NAMES = (b"", b".", b"..")
LONGEST_ON_WINDOWS = 259  # beyond, a path needs another form of itself there


@dataclass(frozen=True, slots=True)
class Flag:
    """Something to know about a path: `escapes` (a link that leads out of the root), `case` and `unicode` (the same name
    as `other` on a system that takes no notice of case, or of how a letter is put together), `reserved` and `long` (can't
    be on Windows)."""

    kind: FlagKind
    path: bytes
    other: bytes = b""


def unsafe_reason(path: bytes) -> str:
    """Why a path is none that may ever be written, empty if it is one."""
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


class Safety:
    """Says of many paths why each may never be written, as `unsafe_reason` does. Paths of one directory share its part of
    the answer."""

    def __init__(self) -> None:
        self._safe = {b""}  # directories, with the slash at their end

    def reason(self, path: bytes) -> str:
        end = path.rfind(b"/") + 1
        directory, name = path[:end], path[end:]
        if directory not in self._safe:
            reason = unsafe_reason(directory[:-1]) if end > 1 else "it is absolute"
            if reason:
                return reason
            self._safe.add(directory)
        return unsafe_reason(path) if name in NO_NAMES or b"\0" in name else ""


def flags_of(entries: Iterable[Entry], staying: Iterable[bytes] = ()) -> tuple[Flag, ...]:
    """The flags of what is to be written, beside the paths that stay."""
    flags: list[Flag] = []
    seen = {folded(path): path for path in staying}
    for path, kind, _, _, content in entries:
        if kind == "symlink" and escapes(path, content):
            flags.append(Flag("escapes", path, content))
        if is_reserved(path.rpartition(b"/")[2]):
            flags.append(Flag("reserved", path))
        if len(path) > LONGEST_ON_WINDOWS:
            flags.append(Flag("long", path))
        other = seen.setdefault(folded(path), path)
        if other is not path and other != path:
            flags.append(Flag(_collision(path, other), path, other))
    return tuple(flags)


def escapes(path: bytes, target: bytes) -> bool:
    """Whether a link at `path` names something outside of the root, by its text alone."""
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
    """Whether Windows has no file of that name."""
    return RESERVED.match(name) is not None


def folded(path: bytes) -> bytes:
    """The path as file systems see it that take no notice of case, nor of how a letter is put together."""
    if path.isascii():
        return path.lower()
    text = unicodedata.normalize("NFD", path.decode("utf-8", "surrogateescape"))
    return unicodedata.normalize("NFD", text.casefold()).encode("utf-8", "surrogateescape")


def _collision(path: bytes, other: bytes) -> FlagKind:
    same_letters = unicodedata.normalize("NFC", path.decode("utf-8", "surrogateescape")) == unicodedata.normalize(
        "NFC", other.decode("utf-8", "surrogateescape")
    )
    return "unicode" if same_letters else "case"
