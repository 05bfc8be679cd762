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
        if name in (b"", b".", b".."):
            return "it has an empty name, `.` or `..` in it"
    return ""


def flags_of(entries: Iterable[Entry], staying: Iterable[bytes] = ()) -> tuple[Flag, ...]:
    """The flags of what is to be written, beside the paths that stay."""
    flags: list[Flag] = []
    seen = {folded(path): path for path in staying}
    for entry in entries:
        if entry.kind == "symlink" and escapes(entry.path, entry.content):
            flags.append(Flag("escapes", entry.path, entry.content))
        name = entry.path.rsplit(b"/", 1)[-1]
        if is_reserved(name):
            flags.append(Flag("reserved", entry.path))
        if len(entry.path) > LONGEST_ON_WINDOWS:
            flags.append(Flag("long", entry.path))
        other = seen.setdefault(folded(entry.path), entry.path)
        if other != entry.path:
            flags.append(Flag(_collision(entry.path, other), entry.path, other))
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
