"""A search for a text in a state: the places and their surroundings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.cli.terminal.sanitize import escape
from holdfast.cli.unknown_types import UnregisteredObject
from holdfast.errors import CheckpointNotFoundError

NAMES_LISTED = 12


def find_value(whole: Any, path: str) -> Any:
    """Return the value at `path`: `messages.3`, or as differences show it, `messages[3]`.

    Raise `CheckpointNotFoundError`, which says how far the path leads and what is there instead.
    """
    dotted = re.sub(r"\[(-?\d+)\]", r".\1", path)
    if dotted == path:
        return _value_at(whole, path)
    try:
        return _value_at(whole, path)  # a key may have brackets in it
    except CheckpointNotFoundError:
        return _value_at(whole, dotted)


def _value_at(whole: Any, path: str) -> Any:
    value = whole
    reached: list[str] = []
    for part in path.split("."):
        parts = value.parts if isinstance(value, UnregisteredObject) else value
        try:
            value = _step(parts, part)
        except LookupError:
            where = escape(".".join(reached), 200) or "the state"
            raise CheckpointNotFoundError(
                f"there is no {escape(part, 60)!r} in {where}: {_what_is_there(parts)}"
            ) from None
        reached.append(part)
    return value


def _step(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        if part in value:
            return value[part]
        return value[int(part)] if _is_number(part) else value[part]
    if isinstance(value, list | tuple) and _is_number(part):
        return value[int(part)]
    raise LookupError(part)


def _is_number(part: str) -> bool:
    return part.isascii() and part.removeprefix("-").isdigit() and len(part) < 20


def _what_is_there(value: Any) -> str:
    if isinstance(value, dict):
        names = [escape(str(key), 40) for _, key in zip(range(NAMES_LISTED), value, strict=False)]
        more = ", …" if len(value) > NAMES_LISTED else ""
        return f"it has {', '.join(names)}{more}" if names else "it is an empty dict"
    if isinstance(value, list | tuple):
        return f"it is a {type(value).__name__} of {len(value)}; positions are numbers, -1 is the last"
    return f"it is a {type(value).__name__}, which has no parts"


AROUND = 30  # characters shown on either side of a match
LONGEST_NUMBER = 1000  # bits; the digits of a longer one are not searched


class SearchMatch(NamedTuple):
    """A place in a state: `path` is valid for `--path`; `value` is the value there, or below the key."""

    path: str
    is_key: bool
    value: Any
    text: str  # that was searched


def search(whole: Any, wanted: str) -> Iterator[SearchMatch]:
    """Yield every key and value that has the text in it, ignoring case, in the order of the state."""
    wanted = wanted.casefold()
    waiting: list[tuple[str, Any, Any]] = [("", None, whole)]
    while waiting:
        path, key, value = waiting.pop()
        if key is not None and wanted in str(key).casefold():
            yield SearchMatch(path, True, value, str(key))
        below = list(_below(value))
        if below:
            prefix = f"{path}." if path else ""
            waiting += [(f"{prefix}{part}", key, item) for part, key, item in reversed(below)]
        else:
            text = _text(value)
            if wanted in text.casefold():
                yield SearchMatch(path, False, value, text)


def _below(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the items of a value: the part of the path, the key (None for a list's index), the item."""
    if isinstance(value, UnregisteredObject):
        yield from _below(value.parts)
    elif isinstance(value, dict):
        yield from ((str(key), key, item) for key, item in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((str(number), None, item) for number, item in enumerate(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | tuple | dict | set | frozenset | UnregisteredObject):
        return ""
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, int) and value.bit_length() > LONGEST_NUMBER:
        return ""
    return str(value)


def cut_around(text: str, wanted: str) -> str:
    """Return the first occurrence in a text, with a little text before and after it."""
    at = max(text.casefold().find(wanted.casefold()), 0)
    first, end = max(at - AROUND, 0), at + len(wanted) + AROUND
    return f"{'…' if first else ''}{text[first:end]}{'…' if end < len(text) else ''}"
