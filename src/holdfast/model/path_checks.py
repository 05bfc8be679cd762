"""Names that lead out of a directory, and names and links that are a nuisance on some system: for a restore to refuse, or to
say."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.model.workspace import Entry

FlagKind = Literal["escapes", "case", "unicode", "reserved", "long"]

RESERVED = re.compile(
    rb"(?:con|prn|aux|nul|com[1-9]|lpt[1-9]) *(?:\.|$)|.*(?:[ .]$|[<>:\"|?*\\\x00-\x1f])", re.IGNORECASE | re.DOTALL
)
DEVICES = re.compile(rb"/(?:con|prn|aux|nul|com[1-9]|lpt[1-9]) *[./]")
NOT_ON_WINDOWS = b'<>:"|?*\\' + bytes(range(32))
NO_NAMES = (b"", b".", b"..")
LONGEST_ON_WINDOWS = 259  # beyond, a path needs another form of itself there
TOGETHER = 1024  # so many paths are looked through at once


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


def first_unsafe(paths: Sequence[bytes]) -> bytes | None:
    """The first of many paths that may never be written, as `unsafe_reason` says of each. They are looked through
    together: between slashes, each way of being unsafe shows as a few bytes."""
    for start in range(0, len(paths), TOGETHER):
        some = paths[start : start + TOGETHER]
        text = b"/" + b"/ /".join(some) + b"/"
        if b"//" in text or b"/./" in text or b"/../" in text or b"\0" in text:
            return next(path for path in some if unsafe_reason(path))
    return None


def flags_of(entries: Iterable[Entry], staying: Iterable[bytes] = ()) -> tuple[Flag, ...]:
    """The flags of what is to be written, beside the paths that stay."""
    entries = list(entries)
    paths = [entry[0] for entry in entries]
    flags = [
        Flag("escapes", path, content)
        for path, kind, _, _, content in entries
        if kind == "symlink" and escapes(path, content)
    ]
    for start in range(0, len(paths), TOGETHER):
        some = paths[start : start + TOGETHER]
        names = [path.rpartition(b"/")[2] for path in some]
        if _may_have_reserved(names):
            flags += [Flag("reserved", path) for path, name in zip(some, names, strict=True) if is_reserved(name)]
    flags += [Flag("long", path) for path in paths if len(path) > LONGEST_ON_WINDOWS]
    return (*flags, *_collisions(paths, list(staying)))


def _may_have_reserved(names: Sequence[bytes]) -> bool:
    """Whether `is_reserved` may be true of one of these. Nearly always it is of none, and that is found out at once."""
    text = b"/" + b"/".join(names).lower() + b"/"
    if len(text.translate(None, NOT_ON_WINDOWS)) != len(text) or b" /" in text or b"./" in text:
        return True
    return DEVICES.search(text) is not None


def _collisions(paths: Sequence[bytes], staying: Sequence[bytes]) -> list[Flag]:
    """Names that are one on a system that takes no notice of case, or of how a letter is put together."""
    every = _all_folded([*staying, *paths])
    if len(set(every)) == len(every):
        return []
    seen = dict(zip(every, staying, strict=False))
    flags: list[Flag] = []
    for path, same in zip(paths, every[len(staying) :], strict=True):
        other = seen.setdefault(same, path)
        if other is not path and other != path:
            flags.append(Flag(_collision(path, other), path, other))
    return flags


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


def _all_folded(paths: Sequence[bytes]) -> list[bytes]:
    return list(map(bytes.lower if all(map(bytes.isascii, paths)) else folded, paths))


def _collision(path: bytes, other: bytes) -> FlagKind:
    same_letters = unicodedata.normalize("NFC", path.decode("utf-8", "surrogateescape")) == unicodedata.normalize(
        "NFC", other.decode("utf-8", "surrogateescape")
    )
    return "unicode" if same_letters else "case"
