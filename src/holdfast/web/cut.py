"""Values as JSON, cut: long texts, long lists, deep or large values. docs/http-api.md has the form.

A cut value is `{"$type": "cut", "of", "size", "offset", "value"}`. No other value looks so: a dict
with a `$type` of its own is written as pairs, and no other typed value has `of`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from holdfast.errors import UsageError
from holdfast.json_form.unregistered import UnregisteredObject
from holdfast.json_form.values import TYPE, to_json
from holdfast.model import path_edit
from holdfast.web.answer import RefusedRequest

CUT = "cut"
_BASE64 = re.compile(r"(?:data:[\w/+.;=-]{1,80},)?[A-Za-z0-9+/_-]{200}[A-Za-z0-9+/_=-]*\Z")


class CutLimits(NamedTuple):
    """How much of a value is shown: levels, items of a list or dict, characters, and values in all."""

    depth: int = 6
    items: int = 100
    text: int = 2000
    values: int = 20_000
    characters: int = 1_000_000


SMALL = CutLimits(depth=4, items=20, text=500, values=500, characters=20_000)
"""For values beside others: metadata of a checkpoint, both sides of an edit."""


def cut(value: Any, limits: CutLimits = SMALL, offset: int = 0) -> Any:
    """Return a value as JSON, cut to the limits, the outermost levels first.

    `offset` is where the outermost text or list begins.
    """
    return _Cutter(limits).run(value, offset)


def kind_of(value: Any) -> tuple[str, int]:
    """Return the name of a value's type, and its size: characters, items or bytes; 1 for a scalar."""
    if isinstance(value, UnregisteredObject):
        return value.name, kind_of(value.parts)[1]
    name = "null" if value is None else type(value).__name__
    return name, len(value) if isinstance(value, str | bytes | bytearray | list | dict | tuple | set | frozenset) else 1


class _Cutter:
    """Goes through a value breadth-first, so that a large branch does not hide its neighbours."""

    def __init__(self, limits: CutLimits) -> None:
        self._limits = limits
        self._values = limits.values
        self._characters = limits.characters
        self._waiting: deque[tuple[Any, int, Callable[[Any], None]]] = deque()

    def run(self, value: Any, offset: int) -> Any:
        result: list[Any] = []
        self._visit(value, 0, result.append, offset)
        while self._waiting:
            self._visit(*self._waiting.popleft())
        return result[0]

    def _visit(self, value: Any, depth: int, put: Callable[[Any], None], offset: int = 0) -> None:
        if isinstance(value, UnregisteredObject):
            self._object(value, depth, put, offset)
        elif isinstance(value, str):
            put(self._text(value, offset, is_asked=depth == 0))
        elif isinstance(value, bytes | bytearray):
            put({TYPE: CUT, "of": type(value).__name__, "size": len(value), "offset": 0, "value": None})
        elif type(value) in (dict, list, tuple, set, frozenset):
            self._container(value, depth, put, offset)
        else:
            put(to_json(value))

    def _object(self, value: UnregisteredObject, depth: int, put: Callable[[Any], None], offset: int) -> None:
        if not isinstance(value.parts, dict | list | tuple):
            typed: dict[str, Any] = {TYPE: value.name, "value": None}
            put(typed)
            self._postpone(value.parts, depth, _setter(typed, "value"))
            return
        self._container(value.parts, depth, put, offset, name=value.name)

    def _text(self, text: str, offset: int, *, is_asked: bool) -> Any:
        most = min(self._limits.text, max(self._characters, 100))
        if not is_asked and len(text) > 200 and _BASE64.match(text):
            return {TYPE: CUT, "of": "str", "size": len(text), "offset": 0, "value": text[:40]}
        shown = text[offset : offset + most]
        self._characters -= len(shown)
        if len(shown) == len(text):
            return text
        return {TYPE: CUT, "of": "str", "size": len(text), "offset": offset, "value": shown}

    def _container(
        self, value: Any, depth: int, put: Callable[[Any], None], offset: int, name: str | None = None
    ) -> None:
        kind = type(value).__name__
        is_plain = kind == "dict" and TYPE not in value and all(type(key) is str for key in value)
        if value and (depth >= self._limits.depth or self._values <= 0):
            put({TYPE: CUT, "of": name or kind, "size": len(value), "offset": 0, "value": None})
            return
        end = max(min(len(value), offset + self._limits.items), offset)
        self._values -= end - offset
        made: Any = {} if is_plain else []
        whole = offset == 0 and end == len(value)
        if not whole:
            put({TYPE: CUT, "of": name or kind, "size": len(value), "offset": offset, "value": made})
        elif name is not None or not (is_plain or kind == "list"):
            put({TYPE: name or kind, "value": made})
        else:
            put(made)
        if kind != "dict":
            for item in islice(value, offset, end):
                made.append(None)
                self._postpone(item, depth + 1, _setter(made, len(made) - 1))
        else:
            for key, item in islice(value.items(), offset, end):
                if is_plain:
                    made[key] = None
                    self._postpone(item, depth + 1, _setter(made, key))
                else:
                    pair = [None, None]
                    made.append(pair)
                    self._postpone(key, depth + 1, _setter(pair, 0))
                    self._postpone(item, depth + 1, _setter(pair, 1))

    def _postpone(self, value: Any, depth: int, put: Callable[[Any], None]) -> None:
        self._waiting.append((value, depth, put))


def _setter(where: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        where[key] = value

    return put


def refuse_cut(given: Any, parameter: str) -> None:
    """Refuse parsed JSON that holds a cut value: as data, it would replace what it stands for."""
    waiting = [given]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get(TYPE) == CUT and "of" in value:
                raise UsageError(f"{parameter!r:.60} holds a value that was cut: give the whole value, or leave it out")
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def find(value: Any, steps: Iterable[Any]) -> Any:
    """Return the value at a path. A text is a key; a number is an index, or the number of a pair."""
    reached: list[Any] = []
    for step in steps:
        try:
            value = _step(value, step)
        except (LookupError, TypeError, ValueError):
            raise RefusedRequest(
                404, "path_not_found", f"there is no {step!r:.60} at {reached!r:.200}", "Open the value above it"
            ) from None
        reached.append(step)
    return value


def _step(value: Any, step: Any) -> Any:
    if isinstance(value, UnregisteredObject):
        value = value.parts
    if isinstance(step, path_edit.Name) and (not isinstance(value, dict) or str(step) not in value):
        step = int(step)
    if isinstance(value, dict):
        if isinstance(step, str):
            return value[str(step)]
        return next(islice(value.values(), step, None)) if 0 <= step < len(value) else _raise_missing()
    if type(step) is int and isinstance(value, set | frozenset):
        return next(islice(value, step, None)) if 0 <= step < len(value) else _raise_missing()
    return value[step] if type(step) is int and isinstance(value, list | tuple) else _raise_missing()


def _raise_missing() -> Any:
    raise LookupError


def read_path(text: str | None) -> Sequence[Any]:
    """Return the steps of a path: a JSON array, or a path as the command line takes it."""
    import json

    if not text:
        return ()
    if not text.startswith("["):
        return path_edit.parse(text).parts
    try:
        steps = json.loads(text)
    except (ValueError, RecursionError):
        steps = None
    if not isinstance(steps, list) or not all(type(step) in (str, int) for step in steps) or len(steps) > 1000:
        raise RefusedRequest(400, "bad_request", "path must be a JSON array of texts and whole numbers")
    return steps
