"""The types of a record's header fields: a header that holdfast has not written is refused as a whole.

A checksum says that a record is as it was saved, not by whom. Code that reads a checked header need
not ask for the types of its fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from holdfast.model.moment import EARLIEST_US, LATEST_US

ID_BYTES = 16
LONGEST_TTL = 1e12  # seconds
LARGEST = 2**63
_IDS = ("id", "tree", "parent", "with")
_LIST = (list, tuple)
_NUMBER = (int, float)
_MAYBE_TEXT = (str, type(None))
_MAYBE_BYTES = (bytes, type(None))
_REQUIRED = frozenset({"id", "seq", "at", "agent", "session"})
_TYPES: Mapping[str, Any] = {
    "id": bytes, "tree": bytes, "parent": bytes, "psum": bytes, "with": bytes, "sum": bytes, "meta": bytes,
    "tasks": bytes, "seq": int, "at": int, "step": int, "sv": int, "when": int, "agent": str, "session": str,
    "name": str, "fw": str, "to": str, "toschema": str, "topic": str, "key": str, "why": str, "ttl": _NUMBER,
    "keep": _NUMBER, "origin": _LIST, "answer": _LIST, "sent": _LIST, "took": _LIST,
}  # fmt: skip
_LISTS: Mapping[str, Any] = {"origin": (str, _MAYBE_BYTES, _MAYBE_TEXT), "answer": (str, _MAYBE_TEXT)}
_LISTS_OF_LISTS: Mapping[str, Any] = {"sent": (_MAYBE_BYTES, bytes), "took": (str, str, bytes)}


def find_wrong_field(header: Mapping[str, Any]) -> str | None:
    """Return a field that is missing, or whose value no holdfast writes; None if there is none."""
    if not header.keys() >= _REQUIRED:
        return min(_REQUIRED - header.keys())
    for name, value in header.items():
        type_ = _TYPES.get(name)
        if type_ is not None and not isinstance(value, type_) and (value is not None or name in _REQUIRED):
            return name
    if not EARLIEST_US <= header["at"] <= LATEST_US:
        return "at"
    if not 0 <= header["seq"] < LARGEST:
        return "seq"
    for name in _IDS:
        if header.get(name) is not None and len(header[name]) != ID_BYTES:
            return name
    return _find_wrong_time(header) or _find_wrong_list(header)


def _find_wrong_time(header: Mapping[str, Any]) -> str | None:
    for name in ("ttl", "keep"):
        seconds = header.get(name)
        if seconds is not None and not (math.isfinite(seconds) and abs(seconds) <= LONGEST_TTL):
            return name
    return None


def _find_wrong_list(header: Mapping[str, Any]) -> str | None:
    for name, of_list in _LISTS.items():
        if header.get(name) is not None and not _fits(header[name], of_list):
            return name
    for name, of_item in _LISTS_OF_LISTS.items():
        if not all(_fits(item, of_item) for item in header.get(name) or ()):
            return name
    return None


def _fits(item: Any, types: tuple[Any, ...]) -> bool:
    return isinstance(item, _LIST) and len(item) == len(types) and all(map(isinstance, item, types))
