"""A search for a text in a state: the places and their surroundings."""

from __future__ import annotations

import re
from typing import Any

from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import CheckpointNotFoundError
from holdfast.json_form.unregistered import UnregisteredObject

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
            raise CheckpointNotFoundError(f"there is no {escape(part, 60)!r} in {where}: {_describe(parts)}") from None
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


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        names = [escape(str(key), 40) for _, key in zip(range(NAMES_LISTED), value, strict=False)]
        more = ", …" if len(value) > NAMES_LISTED else ""
        return f"it has {', '.join(names)}{more}" if names else "it is an empty dict"
    if isinstance(value, list | tuple):
        return f"it is a {type(value).__name__} of {len(value)}; positions are numbers, -1 is the last"
    return f"it is a {type(value).__name__}, which has no parts"
