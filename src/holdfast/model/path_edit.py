"""Edits by path: new values at places of a state. Pure: the input is never changed.

A path is one of

    messages.-1.content     keys and positions with dots between them; -1 is the last element
    messages[3]['a.b']      positions and keys in brackets, as differences print them
    /messages/3/content     a JSON Pointer (RFC 6901), for keys with dots in them
    ("messages", 3, "content")   the keys themselves, for keys that are no strings

It begins in `execution_state`, unless it begins with `agent_context` (or `execution_state`), and
the state has no such key. The path must exist: a missing name is more likely a mistake than
intended. A `+` before the path says that it is intended; `messages.-` (in a pointer, too) is the
place after the last element of a list.

A text or number that replaces an Enum, a datetime or another typed value becomes one of the same
type, or is refused (`holdfast.model.conversion`).
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.errors import UsageError
from holdfast.model.conversion import convert, unwrap

STATE, CONTEXT = "execution_state", "agent_context"
NAMES_LISTED = 8
_PARTS = re.compile(
    r"""\[(?P<exact>-?\d{1,18}|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]|(?P<dot>\.)?(?P<name>[^.\[]+)""", re.DOTALL
)
_ESCAPED = re.compile(
    r"\\(?:x(?P<x>[0-9a-f]{2})|u(?P<u>[0-9a-f]{4})|U(?P<U>000[0-9a-f]{5}|0010[0-9a-f]{4})|(?P<other>.))", re.DOTALL
)
_NUMBER = re.compile(r"-?\d{1,18}")


class Name(str):
    """A part of a path that a person wrote: a key or a number.

    It is a number in a list, or if the dict has no such text.
    """

    __slots__ = ()


class EditTarget(NamedTuple):
    """The target of a path: its parts, as written (`Name`) or exact, and whether its end may be new."""

    text: str
    parts: tuple[Any, ...]
    may_be_new: bool = False


Edits = Mapping[Any, Any]


def parse(path: Any) -> EditTarget:
    """Return the parts of a path. Raise `UsageError` if it is none."""
    if isinstance(path, tuple):
        if not path:
            raise UsageError("a path of no keys means the whole state: give the state to `save` instead")
        return EditTarget(repr(path), path)
    if not isinstance(path, str) or not path.removeprefix("+"):
        raise UsageError(
            f"{path!r:.80} is no path: give text such as 'messages.-1.content' or "
            "'/messages/0/content', or a tuple of keys"
        )
    text, may_be_new = path.removeprefix("+"), path.startswith("+")
    if text.startswith("/"):
        parts = [Name(part.replace("~1", "/").replace("~0", "~")) for part in text[1:].split("/")]
        return EditTarget(text, tuple(parts), may_be_new)
    found: list[Any] = []
    place = 0
    while place < len(text):
        part = _PARTS.match(text, place)
        if part is None or (part["name"] is not None and bool(part["dot"]) != bool(found)):
            raise UsageError(
                f"{path!r:.80} is no path: {text[place:]!r:.40} can't be read. Keys and positions have "
                "dots between them (messages.-1.content), or stand in brackets (messages[0]['a key'])"
            )
        found.append(Name(part["name"]) if part["name"] is not None else _exact(part["exact"]))
        place = part.end()
    return EditTarget(text, tuple(found), may_be_new)


def _exact(text: str) -> Any:
    """Return the number or the text in brackets, the latter as Python writes it."""
    return int(text) if text[0] not in "'\"" else _ESCAPED.sub(_unescape, text[1:-1])


def _unescape(found: re.Match[str]) -> str:
    digits = found["x"] or found["u"] or found["U"]
    return chr(int(digits, 16)) if digits else {"n": "\n", "r": "\r", "t": "\t"}.get(found["other"], found["other"])


def edit(state: Any, context: Any, edits: Edits) -> tuple[Any, Any]:
    """Return state and context with these values at these paths, set one after the other.

    Containers on the path are copied.
    """
    for path, value in edits.items():
        target = parse(path)
        root, parts = _find_root(target, state)
        if root == CONTEXT:
            context = _put(context, parts, value, target, CONTEXT)
        else:
            state = _put(state, parts, value, target, STATE)
    return state, context


def _find_root(target: EditTarget, state: Any) -> tuple[str, tuple[Any, ...]]:
    first = target.parts[0]
    if len(target.parts) > 1 and first in (STATE, CONTEXT) and not (isinstance(state, dict) and first in state):
        return str(first), target.parts[1:]
    return STATE, target.parts


def _put(value: Any, parts: Sequence[Any], new: Any, target: EditTarget, where: str) -> Any:
    """Return the value with another one at the path."""
    part, rest = parts[0], parts[1:]
    below = f"{where}.{part}" if isinstance(part, str) else f"{where}[{part!r}]"
    if hasattr(value, "with_parts"):  # an object of an unknown class, as it is stored
        return value.with_parts(_put(value.parts, parts, new, target, where))
    if isinstance(value, dict):
        key = _key(value, part)
        if key is None:
            if not target.may_be_new or rest:
                raise _make_missing_error(part, value, where, target)
            return _with_item(value, str(part) if isinstance(part, Name) else part, unwrap(new, target.text))
        [found] = key
        return _with_item(value, found, _replace_below(value[found], rest, new, target, below))
    if isinstance(value, list | tuple):
        items = list(value)
        if part == "-" and not rest:
            items.append(_append_item(items, new, target))
        else:
            place = _position(value, part, where, target)
            items[place] = _replace_below(items[place], rest, new, target, below)
        return items if isinstance(value, list) else _make_like(value, items)
    return _put_in_object(value, part, rest, new, target, where)


def _replace_below(old: Any, rest: Sequence[Any], new: Any, target: EditTarget, below: str) -> Any:
    return _put(old, rest, new, target, below) if rest else convert(old, new, target.text)


def _append_item(items: Sequence[Any], new: Any, target: EditTarget) -> Any:
    """Return the list with a new element: of the type of the others, if these are all of one type."""
    if len({type(item) for item in items}) != 1 or isinstance(new, dict | list):
        return unwrap(new, target.text)
    return convert(items[-1], new, target.text)


def _with_item(value: dict[Any, Any], key: Any, item: Any) -> dict[Any, Any]:
    """Return a copy with another item, in the same order and of the same class, such as OrderedDict."""
    changed = copy.copy(value)
    changed[key] = item
    return changed


def _key(value: dict[Any, Any], part: Any) -> tuple[Any] | None:
    """Return the key that a part means, in a tuple; None if there is none.

    `1` and `True` are two keys to a person who wrote one.
    """
    candidates: list[Any] = [str(part)] if isinstance(part, Name) else [part]
    if isinstance(part, Name) and _NUMBER.fullmatch(part):
        candidates.append(int(part))
    for wanted in candidates:
        for key in value:
            if key == wanted and type(key) is type(wanted):
                return (key,)
    return None


def _position(value: Sequence[Any], part: Any, where: str, target: EditTarget) -> int:
    is_number = (isinstance(part, int) and not isinstance(part, bool)) or (
        isinstance(part, Name) and _NUMBER.fullmatch(part) is not None
    )
    if not is_number or not -len(value) <= int(part) < len(value):
        raise UsageError(
            f"the path {target.text!r:.120} leads nowhere: {where} is a {type(value).__name__} of "
            f"{len(value)}, and has no "
            f"{part!r:.60}. Positions go from 0, or from -1 backwards; `-` is the place after the last"
        )
    return int(part)


def _make_like(value: tuple[Any, ...], items: list[Any]) -> Any:
    make = getattr(value, "_make", None)  # of a named tuple
    return make(items) if make is not None else tuple(items)


def _put_in_object(value: Any, part: Any, rest: Sequence[Any], new: Any, target: EditTarget, where: str) -> Any:
    """Return a copy of an object with another value in one of its fields."""
    if isinstance(part, str):
        part = str(part)
        changed = {part: _replace_below(getattr(value, part, None), rest, new, target, f"{where}.{part}")}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            if part in names:
                return dataclasses.replace(value, **changed)
            raise _make_missing_error(part, dict.fromkeys(names), where, target)
        fields = getattr(type(value), "model_fields", None)  # pydantic's
        if fields is not None:
            if part in fields:
                return value.model_copy(update=changed)
            raise _make_missing_error(part, fields, where, target)
        attributes = getattr(type(value), "__attrs_attrs__", None)
        if attributes is not None:
            names = [attribute.name for attribute in attributes]
            if part not in names:
                raise _make_missing_error(part, dict.fromkeys(names), where, target)
            copied = copy.copy(value)
            object.__setattr__(copied, part, changed[part])  # the class may be frozen
            return copied
    raise UsageError(
        f"the path {target.text!r:.120} leads nowhere: {where} is a {type(value).__name__}, which has "
        "no parts that can be replaced one by one. Replace it as a whole"
    )


def _make_missing_error(part: Any, container: Mapping[Any, Any], where: str, target: EditTarget) -> UsageError:
    """Return an error that says how far the path leads, and which name is nearest."""
    import difflib

    names = [str(key) for key in container]
    near = difflib.get_close_matches(str(part), names, n=1, cutoff=0.4)
    listed = ", ".join(names[:NAMES_LISTED]) + (", …" if len(names) > NAMES_LISTED else "")
    nearest = f"the nearest is {near[0]!r:.60}" if near else f"it has {listed}" if names else "it is empty"
    return UsageError(
        f"the path {target.text!r:.120} leads nowhere: there is no {str(part)!r:.60} in {where}, {nearest}. "
        f"'+{target.text:.120}' adds the last part, if all before it exists"
    )
