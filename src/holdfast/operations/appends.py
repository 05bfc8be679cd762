"""Declared appends: putting the elements that follow the parent's lists into the state that is saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import UsageError
from holdfast.objects.manifest import Manifest, Path
from holdfast.objects.split import Appended, path_text
from holdfast.operations.arguments import SaveRequest
from holdfast.operations.memory import Line
from holdfast.operations.reading import load_state
from holdfast.operations.services import Services


async def with_appends(services: Services, request: SaveRequest, line: Line) -> Any:
    """The execution state with its declared appends in place.

    Where the parent's list is kept as a log, only the new elements are put there. A list that is still short is read
    and made whole: it is part of the parent's skeleton, which is small.
    """
    assert request.append is not None
    state = request.execution_state
    parent_state: Any = None
    for path, elements in request.append.items():
        if line.manifest is not None and line.manifest.list_at(path) is None and parent_state is None:
            parent_state = await _parent_state(services, line.manifest)
        state = _put(state, path, _appended(line, parent_state, path, elements))
    return state


async def resolved_anew(services: Services, request: SaveRequest, line: Line, state: Any) -> Any:
    """A state that was split against another parent, with its declared appends following this line's lists."""
    assert request.append is not None
    parent_state: Any = None
    for path, given in request.append.items():
        if line.manifest is not None and line.manifest.list_at(path) is None and parent_state is None:
            parent_state = await _parent_state(services, line.manifest)
        value = _at(state, path)
        elements = value.elements if isinstance(value, Appended) else value[len(value) - len(given) :]
        state = _put(state, path, _appended(line, parent_state, path, elements), replace=True)
    return state


def as_stored(services: Services, request: SaveRequest, stored_state: Any) -> Any:
    """The execution state with whole lists from a stored one in the places of its appends; None if these lists don't
    end in the appended elements. The parent is not needed for this: it may have expired."""
    assert request.append is not None
    state = request.execution_state
    for path, elements in request.append.items():
        whole = _at(stored_state, path)
        if type(whole) is not list or len(whole) < len(elements):
            return None
        codec = services.codec
        end = whole[len(whole) - len(elements) :]
        if codec.encode_each(end, path_text(path)) != codec.encode_each(elements, path_text(path)):
            return None
        state = _put(state, path, whole)
    return state


async def _parent_state(services: Services, manifest: Manifest) -> Any:
    execution_state, _ = await load_state(services, manifest, verify=True)
    return execution_state


def _appended(line: Line, parent_state: Any, path: Path, elements: Sequence[Any]) -> Any:
    if line.known(path) is not None:
        return Appended(list(elements))
    older = _at(parent_state, path)
    if older is None:
        return list(elements)
    if type(older) is not list:
        raise UsageError(
            f"append to {path_text(path)}: the parent has a {type(older).__name__} there, not a list. "
            "Give the whole value in execution_state instead"
        )
    return [*older, *elements]


def _at(state: Any, path: Path) -> Any:
    """What the state has at that path or, where the path can't be followed, what is in its way; None for nothing."""
    for key in path[1:]:
        if type(state) is not dict:
            return state
        state = state.get(key)
    return state


def _put(state: Any, path: Path, value: Any, *, replace: bool = False) -> Any:
    """A copy of the state with the value at that path; only the dicts on the way are copied."""
    if not isinstance(state, dict):
        raise UsageError(
            f"append to {path_text(path)}: execution_state must be a dict that can take it, not a {type(state).__name__}"
        )
    copy = dict(state)
    here = copy
    for key in path[1:-1]:
        below = here.get(key, {})
        if type(below) is not dict:
            raise UsageError(f"append to {path_text(path)}: {key!r} is a {type(below).__name__}, not a dict")
        below = dict(below)
        here[key] = below
        here = below
    if path[-1] in here and not replace:
        raise UsageError(
            f"{path_text(path)} is in execution_state and in append. Leave it out of execution_state: "
            "with append, the list is the parent's and the new elements"
        )
    here[path[-1]] = value
    return copy
