"""A search for a text in a state: the places and their surroundings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.json_form.unregistered import UnregisteredObject

AROUND = 30  # characters shown on either side of a match


LONGEST_NUMBER = 1000  # bits; the digits of a longer one are not searched


class SearchMatch(NamedTuple):
    """A place in a state: `path` is valid for `--path`; `value` is the value there, or below the key."""

    path: str
    is_key: bool
    value: Any
    text: str  # that was searched
    steps: tuple[str | int, ...] = ()  # the path by keys and indexes; a number also counts pairs of a dict


def search(whole: Any, wanted: str) -> Iterator[SearchMatch]:
    """Yield every key and value that has the text in it, ignoring case, in the order of the state."""
    wanted = wanted.casefold()
    waiting: list[tuple[str, Any, Any, tuple[str | int, ...]]] = [("", None, whole, ())]
    while waiting:
        path, key, value, steps = waiting.pop()
        if key is not None and wanted in str(key).casefold():
            yield SearchMatch(path, True, value, str(key), steps)
        below = list(_iterate_items(value))
        if below:
            prefix = f"{path}." if path else ""
            waiting += [(f"{prefix}{part}", key, item, (*steps, step)) for part, key, item, step in reversed(below)]
        else:
            text = _text(value)
            if wanted in text.casefold():
                yield SearchMatch(path, False, value, text, steps)


def _iterate_items(value: Any) -> Iterator[tuple[str, Any, Any, str | int]]:
    """Yield the items of a value: the part of the path, the key (None for a list's index), item and step."""
    if isinstance(value, UnregisteredObject):
        yield from _iterate_items(value.parts)
    elif isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            yield str(key), key, item, key if type(key) is str else number
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((str(number), None, item, number) for number, item in enumerate(value))


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
