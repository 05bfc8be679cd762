"""Declared appends: new elements after the parent's lists, in the state that is saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.backends.port import Segment
from holdfast.codec.codec import Codec
from holdfast.codec.registry import RegisteredType, TypeRegistry
from holdfast.errors import UsageError
from holdfast.format.state import assemble
from holdfast.format.state.manifest import Manifest, Path
from holdfast.format.state.split import ROOTS, ListAppend, path_text
from holdfast.operations.context import StoreContext
from holdfast.operations.lookup import load_state
from holdfast.operations.session_cache import SessionTip
from holdfast.operations.validate import SaveRequest


async def apply_appends(ctx: StoreContext, request: SaveRequest, tip: SessionTip) -> tuple[Any, Any]:
    """Return the execution state and the context with their declared appends.

    Where the parent's list is stored as a log, only the new elements are written. A list that is
    still short is read and completed: it is part of the parent's skeleton, which is small.
    """
    assert request.append is not None
    roots = {ROOTS[0]: request.execution_state, ROOTS[1]: request.agent_context}
    parent = _Parent(ctx, tip)
    for path, elements in request.append.items():
        appended = _append_elements(request, tip, await parent.state(path), path, elements)
        roots[_root(path)] = _put(roots[_root(path)], path, appended)
    return roots[ROOTS[0]], roots[ROOTS[1]]


async def reapply_appends(
    ctx: StoreContext, request: SaveRequest, tip: SessionTip, state: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Return a state that was split for another parent, with its declared appends after this tip's lists."""
    assert request.append is not None
    roots = dict(zip(ROOTS, state, strict=True))
    parent = _Parent(ctx, tip)
    for path, given in request.append.items():
        value = _get_at(roots[_root(path)], path)
        elements = value.elements if isinstance(value, ListAppend) else value[len(value) - len(given) :]
        appended = _append_elements(request, tip, await parent.state(path), path, elements)
        roots[_root(path)] = _put(roots[_root(path)], path, appended, replace=True)
    return roots[ROOTS[0]], roots[ROOTS[1]]


def load_whole_lists(ctx: StoreContext, request: SaveRequest, stored_state: tuple[Any, Any]) -> tuple[Any, Any] | None:
    """Return the execution state and the context with whole stored lists instead of their appends.

    None if these lists don't end in the appended elements. The parent is not needed for this: it
    may have expired.
    """
    assert request.append is not None
    roots = {ROOTS[0]: request.execution_state, ROOTS[1]: request.agent_context}
    stored = dict(zip(ROOTS, stored_state, strict=True))
    for path, elements in request.append.items():
        whole = _get_at(stored[_root(path)], path)
        if type(whole) is not list or len(whole) < len(elements):
            return None
        codec = ctx.codec
        end = whole[len(whole) - len(elements) :]
        if codec.encode_each(end, path_text(path)) != codec.encode_each(elements, path_text(path)):
            return None
        roots[_root(path)] = _put(roots[_root(path)], path, whole)
    return roots[ROOTS[0]], roots[ROOTS[1]]


class _Parent:
    """The parent's state, read once and only if a list is still short.

    If it has only long lists, only the skeleton is read, unless they were appended to before.
    """

    def __init__(self, ctx: StoreContext, tip: SessionTip) -> None:
        self._ctx = ctx
        self._tip = tip
        self._roots: dict[str, Any] | None = None
        self._outlines: dict[str, Any] | None = None

    async def state(self, path: Path) -> Any:
        """Return the part of the state that the path leads into; None if it need not be read.

        Objects in it may be represented by their types' names.
        """
        manifest, known = self._tip.manifest, self._tip.find_list(path)
        if manifest is None or (known is not None and known.was_appended_to):
            return None
        if known is not None:
            if self._outlines is None:
                self._outlines = dict(zip(ROOTS, await self._outline(manifest), strict=True))
            return self._outlines[_root(path)]
        if self._roots is None:
            self._roots = dict(zip(ROOTS, await load_state(self._ctx, manifest, verify=True), strict=True))
        return self._roots[_root(path)]

    async def _outline(self, manifest: Manifest) -> tuple[Any, Any]:
        """Return the skeleton, without the lists and blobs that are stored separately."""
        span = manifest.skeleton.span
        found: Sequence[Segment] = ()
        if span is not None:
            at_hand = (self._tip.at_hand or {}).get(span)
            found = (await self._ctx.backend.segments([span]))[0] if at_hand is None else at_hand
        codec = Codec(_NamedTypes(), self._ctx.codec.limits)
        state, context = codec.decode(assemble.skeleton_of(manifest, found), lambda _kind, _index: None)
        return state, context


class _NamedObject:
    """A registered object represented by its type's name only."""

    def __init__(self, name: str) -> None:
        self.name = name


class _NamedOnly:
    def __init__(self, name: str) -> None:
        self._name = name

    def take_apart(self, value: Any) -> Any:
        raise NotImplementedError  # it is looked up, and stores nothing

    def rebuild(self, _parts: object) -> _NamedObject:
        return _NamedObject(self._name)


class _NamedTypes(TypeRegistry):
    """A registry in which every name is known, whatever the process has registered."""

    def named(self, name: str) -> RegisteredType:
        return RegisteredType(_NamedObject, name, _NamedOnly(name))


def _root(path: Path) -> str:
    """Return which of the two parts a path leads into."""
    return str(path[0])


def _append_elements(
    request: SaveRequest, tip: SessionTip, parent_state: Any, path: Path, elements: Sequence[Any]
) -> Any:
    older = _get_at(parent_state, path)
    _refuse(path, older)
    if tip.find_list(path) is not None:
        return ListAppend(list(elements))
    if older is None:
        if path in request.lists_of_parent:
            raise _make_no_list_error(tip, path)
        return list(elements)
    if type(older) is not list:
        raise UsageError(
            f"append to {path_text(path)}: the parent has a {type(older).__name__} there, not a list. "
            "Give the whole value in execution_state instead"
        )
    return [*older, *elements]


def _make_no_list_error(tip: SessionTip, path: Path) -> UsageError:
    keys = ".".join(map(str, path[1:]))
    why = "there is no parent yet" if tip.checkpoint is None else "the parent has no list there"
    return UsageError(
        f"append to {path_text(path)}: {why}, so there is nothing to append to. `append={{'+{keys}': [...]}}` makes "
        "a new list; so does the list in execution_state"
    )


def _refuse(path: Path, older: Any) -> None:
    if isinstance(older, _InTheWay):
        raise UsageError(
            f"append to {path_text(path)}: the parent has a {older.kind} at {path_text(older.path)}, and an append "
            "leads through dicts only. Give the whole value in execution_state instead"
        )


class _InTheWay(NamedTuple):
    """The value that keeps a path from being followed to its end, and its position."""

    kind: str
    path: Path


def _get_at(state: Any, path: Path) -> Any:
    """Return the value at that path, None if there is none, or the obstacle."""
    for depth, key in enumerate(path[1:], start=1):
        if state is None:
            return None
        if type(state) is not dict:
            return _InTheWay(state.name if type(state) is _NamedObject else type(state).__name__, path[:depth])
        state = state.get(key)
    return state


def _put(state: Any, path: Path, value: Any, *, replace: bool = False) -> Any:
    """Return a copy of the state with the value at that path; only dicts on the path are copied."""
    if type(state) is not dict:
        raise UsageError(
            f"append to {path_text(path)}: execution_state must be a dict that can take it, not a "
            f"{type(state).__name__}"
        )
    copy = dict(state)
    container = copy
    for key in path[1:-1]:
        below = container.get(key, {})
        if type(below) is not dict:
            raise UsageError(f"append to {path_text(path)}: {key!r} is a {type(below).__name__}, not a dict")
        below = dict(below)
        container[key] = below
        container = below
    if path[-1] in container and not replace:
        raise UsageError(
            f"{path_text(path)} is in execution_state and in append. Leave it out of execution_state: "
            "with append, the list is the parent's and the new elements"
        )
    container[path[-1]] = value
    return copy
