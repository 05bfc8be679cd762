"""Declared appends: putting the elements that follow the parent's lists into the state that is saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.errors import UsageError
from holdfast.objects.manifest import Path
from holdfast.objects.split import ROOTS, Appended, path_text
from holdfast.operations.arguments import SaveRequest
from holdfast.operations.memory import Line
from holdfast.operations.reading import load_state
from holdfast.operations.services import Services


async def with_appends(services: Services, request: SaveRequest, line: Line) -> tuple[Any, Any]:
    """The execution state and the context with their declared appends in place.

    Where the parent's list is kept as a log, only the new elements are put there. A list that is still short is read
    and made whole: it is part of the parent's skeleton, which is small.
    """
    assert request.append is not None
    roots = {ROOTS[0]: request.execution_state, ROOTS[1]: request.agent_context}
    parent = _Parent(services, line)
    for path, elements in request.append.items():
        appended = _appended(line, await parent.state(path), path, elements)
        roots[_root(path)] = _put(roots[_root(path)], path, appended)
    return roots[ROOTS[0]], roots[ROOTS[1]]


def with_appends_to_logs(request: SaveRequest) -> tuple[Any, Any]:
    """The same without a look at the parent: for who expects all its lists to be kept as logs."""
    assert request.append is not None
    roots = {ROOTS[0]: request.execution_state, ROOTS[1]: request.agent_context}
    for path, elements in request.append.items():
        roots[_root(path)] = _put(roots[_root(path)], path, Appended(list(elements)))
    return roots[ROOTS[0]], roots[ROOTS[1]]


async def resolved_anew(
    services: Services, request: SaveRequest, line: Line, state: tuple[Any, Any]
) -> tuple[Any, Any]:
    """A state that was split against another parent, with its declared appends following this line's lists."""
    assert request.append is not None
    roots = dict(zip(ROOTS, state, strict=True))
    parent = _Parent(services, line)
    for path, given in request.append.items():
        value = _at(roots[_root(path)], path)
        elements = value.elements if isinstance(value, Appended) else value[len(value) - len(given) :]
        appended = _appended(line, await parent.state(path), path, elements)
        roots[_root(path)] = _put(roots[_root(path)], path, appended, replace=True)
    return roots[ROOTS[0]], roots[ROOTS[1]]


def as_stored(services: Services, request: SaveRequest, stored_state: tuple[Any, Any]) -> tuple[Any, Any] | None:
    """The execution state and the context with whole lists from stored ones in the places of their appends; None if these
    lists don't end in the appended elements. The parent is not needed for this: it may have expired."""
    assert request.append is not None
    roots = {ROOTS[0]: request.execution_state, ROOTS[1]: request.agent_context}
    stored = dict(zip(ROOTS, stored_state, strict=True))
    for path, elements in request.append.items():
        whole = _at(stored[_root(path)], path)
        if type(whole) is not list or len(whole) < len(elements):
            return None
        codec = services.codec
        end = whole[len(whole) - len(elements) :]
        if codec.encode_each(end, path_text(path)) != codec.encode_each(elements, path_text(path)):
            return None
        roots[_root(path)] = _put(roots[_root(path)], path, whole)
    return roots[ROOTS[0]], roots[ROOTS[1]]


class _Parent:
    """The parent's state, read once and only if a list is still short."""

    def __init__(self, services: Services, line: Line) -> None:
        self._services = services
        self._manifest = line.manifest
        self._roots: dict[str, Any] | None = None

    async def state(self, path: Path) -> Any:
        if self._manifest is None or self._manifest.list_at(path) is not None:
            return None
        if self._roots is None:
            self._roots = dict(zip(ROOTS, await load_state(self._services, self._manifest, verify=True), strict=True))
        return self._roots[_root(path)]


def _root(path: Path) -> str:
    """Which of the two a path leads into."""
    return str(path[0])


def _appended(line: Line, parent_state: Any, path: Path, elements: Sequence[Any]) -> Any:
    if line.known(path) is not None:
        return Appended(list(elements))
    older = _at(parent_state, path)
    if isinstance(older, _InTheWay):
        raise UsageError(
            f"append to {path_text(path)}: the parent has a {older.kind} at {path_text(older.path)}, and an append leads through "
            "dicts only. Give the whole value in execution_state instead"
        )
    if older is None:
        return list(elements)
    if type(older) is not list:
        raise UsageError(
            f"append to {path_text(path)}: the parent has a {type(older).__name__} there, not a list. "
            "Give the whole value in execution_state instead"
        )
    return [*older, *elements]


class _InTheWay(NamedTuple):
    """What keeps a path from being followed to its end, and where."""

    kind: str
    path: Path


def _at(state: Any, path: Path) -> Any:
    """What the state has at that path, None for nothing, or what is in the way there."""
    for depth, key in enumerate(path[1:], start=1):
        if state is None:
            return None
        if type(state) is not dict:
            return _InTheWay(type(state).__name__, path[:depth])
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
