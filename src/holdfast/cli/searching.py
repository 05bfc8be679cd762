"""Looking for a text in a state: where it stands, and what around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.cli.unregistered import Unregistered

AROUND = 30  # characters shown on either side of what was found
LONGEST_NUMBER = 1000  # bits; nobody looks for the digits of a longer one


class Found(NamedTuple):
    """A place in a state. `path` is one that `--path` takes; `value` is what stands there, or below the key."""

    path: str
    is_key: bool
    value: Any
    text: str  # that was searched


def search(whole: Any, wanted: str) -> Iterator[Found]:
    """Every key and every value that has the text in it, whatever its case, in the order of the state."""
    wanted = wanted.casefold()
    waiting: list[tuple[str, Any, Any]] = [("", None, whole)]
    while waiting:
        path, key, value = waiting.pop()
        if key is not None and wanted in str(key).casefold():
            yield Found(path, True, value, str(key))
        below = list(_below(value))
        if below:
            prefix = f"{path}." if path else ""
            waiting += [(f"{prefix}{part}", key, item) for part, key, item in reversed(below)]
        else:
            text = _text(value)
            if wanted in text.casefold():
                yield Found(path, False, value, text)


def _below(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """What a value holds: the part of the path, the key (None for a place in a list), the item."""
    if isinstance(value, Unregistered):
        yield from _below(value.parts)
    elif isinstance(value, dict):
        yield from ((str(key), key, item) for key, item in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((str(number), None, item) for number, item in enumerate(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | tuple | dict | set | frozenset | Unregistered):
        return ""
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, int) and value.bit_length() > LONGEST_NUMBER:
        return ""
    return str(value)


def around(text: str, wanted: str) -> str:
    """The first place of it in a text, with a little of what stands before and after."""
    at = max(text.casefold().find(wanted.casefold()), 0)
    first, end = max(at - AROUND, 0), at + len(wanted) + AROUND
    return f"{'…' if first else ''}{text[first:end]}{'…' if end < len(text) else ''}"
