"""Text from a store, made safe for a terminal. Names are data: they may hold escape sequences, or be 10 KB long."""

from __future__ import annotations

import unicodedata

NAME_LIMIT = 40


def printable(text: str, limit: int | None = None) -> str:
    """`text` with everything that is not printable escaped (controls, line ends, marks that reverse the direction of
    text, lone surrogates), and shortened to `limit` characters."""
    if limit is not None and len(text) > limit:
        # Escapes only make it longer, so no more of the text than this can be shown.
        shown = _escaped(text[:limit])
        return f"{shown[: limit - 1]}…"
    shown = text if text.isprintable() else _escaped(text)
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"


def printable_lines(text: str) -> str:
    """The same for text of several lines, of which the line ends stay."""
    return "\n".join(printable(line) for line in text.split("\n"))


def name(text: str | None) -> str:
    """A name for a table."""
    return printable(text, NAME_LIMIT) if text else ""


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def byte_count(count: int) -> str:
    """A size for people: 873 B, 12.4 KB, 3.1 MB (of 1000)."""
    size, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
