"""Store text made safe for a terminal: names are data, with escape sequences or 10 KB long."""

from __future__ import annotations

import unicodedata
from datetime import datetime

NAME_LIMIT = 40
IDENTIFIER_LIMIT = 255


def escape(text: str, limit: int | None = None) -> str:
    """Return `text` with non-printable characters escaped, shortened to `limit` characters.

    These are controls, line ends, marks that reverse the direction of text, and lone surrogates.
    """
    if limit is not None and len(text) > limit:
        # Escapes only make it longer, so no more of the text than this can be shown.
        shown = _escape_text(text[:limit])
        return f"{shown[: limit - 1]}…"
    shown = text if text.isprintable() else _escape_text(text)
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"


def escape_lines(text: str) -> str:
    """Return `printable` text of several lines, with its line ends."""
    return "\n".join(escape(line) for line in text.split("\n"))


def format_name(text: str | None) -> str:
    """Return a descriptive text, such as a step's name or a note, for a table."""
    return escape(text, NAME_LIMIT) if text else ""


def format_identifier(text: str | None) -> str:
    """Return a name that commands take, such as a session's, an agent's or a tag's.

    It is whole, so that it can be pasted; only a name too long to be typed by a person is cut.
    """
    return escape(text, IDENTIFIER_LIMIT) if text else ""


def format_utc(when: datetime) -> str:
    """Return a time of UTC for a table, to the second."""
    return f"{when:%Y-%m-%d %H:%M:%S}"


def format_number(value: int | None) -> str:
    """Return a number for a table, such as a step's; "" for None."""
    return "" if value is None else str(value)


def _escape_text(text: str) -> str:
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def measure_width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def format_bytes(count: int) -> str:
    """Return a size for people: 873 B, 12.4 KB, 3.1 MB (of 1000)."""
    size, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
