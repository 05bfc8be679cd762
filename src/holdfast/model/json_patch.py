"""A difference as an RFC 6902 JSON Patch, for values that JSON can express."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.errors import UnsupportedValueError

if TYPE_CHECKING:
    from holdfast.model.diff import Edit, Path


def json_patch(edits: Iterable[Edit]) -> list[dict[str, Any]]:
    """Return the operations of a JSON Patch, without the document's name at the start of each path."""
    from holdfast.model.diff import Drop, Put, Splice

    operations: list[dict[str, Any]] = []
    for edit in edits:
        where = _pointer(edit.path)
        if isinstance(edit, Put):
            # RFC 6902's "replace" of the whole document is "replace" of the empty pointer.
            operation = "replace" if edit.replaces else "add"
            operations.append({"op": operation, "path": where, "value": _check_plain(edit.value, where)})
        elif isinstance(edit, Drop):
            operations.append({"op": "remove", "path": where})
        elif isinstance(edit, Splice):
            operations += [{"op": "remove", "path": f"{where}/{edit.at}"} for _ in edit.removed]
            operations += [
                {"op": "add", "path": f"{where}/{place}", "value": _check_plain(element, f"{where}/{place}")}
                for place, element in enumerate(edit.added, edit.at)
            ]
    return operations


def _pointer(path: Path) -> str:
    from holdfast.model.diff import At, Field

    keys = []
    for key in path[1:]:
        if type(key) is Field:
            raise _make_refusal(
                f"{key!r:.60}", f"it changes the field {key!r:.60} of an object, which has no form in JSON"
            )
        if type(key) is not str and type(key) is not At:
            raise _make_refusal(f"{key!r:.60}", f"the key {key!r:.60} of a dict is no string")
        keys.append(str(key if type(key) is str else int(key)).replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{key}" for key in keys)


def _check_plain(value: Any, where: str) -> Any:
    """Return the value, if it survives JSON unchanged; otherwise raise an error."""
    if value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
        return value
    if type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _make_refusal(where, "a string with a lone surrogate is no text") from None
        return value
    if type(value) is list:
        return [_check_plain(item, f"{where}/{place}") for place, item in enumerate(value)]
    if type(value) is dict:
        if not all(type(key) is str for key in value):
            raise _make_refusal(where, "a key of a dict is no string")
        return {key: _check_plain(item, f"{where}/{key}") for key, item in value.items()}
    raise _make_refusal(where, f"a {type(value).__name__} has no form in JSON")


def _make_refusal(where: str, problem: str) -> UnsupportedValueError:
    return UnsupportedValueError(where or "execution_state", problem, "Use `apply`, which takes every type")
