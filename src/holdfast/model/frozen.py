"""Immutable dicts and lists, at any depth.

They are dicts and lists, so they compare with, and are written as, plain ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn


def _refuse(self: Any, *_args: Any, **_kwargs: Any) -> NoReturn:
    raise TypeError(f"this {type(self).__name__} is part of a state, which never changes: take a copy, `thawed(value)`")


class FrozenDict(dict[Any, Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, _memo: Any) -> dict[Any, Any]:
        return thaw(self)  # type: ignore[no-any-return]  # of the kind that `self` is

    def __reduce__(self) -> Any:
        return freeze, (thaw(self),)


class FrozenList(list[Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = _refuse
    pop = remove = reverse = sort = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, _memo: Any) -> list[Any]:
        return thaw(self)  # type: ignore[no-any-return]  # of the kind that `self` is

    def __reduce__(self) -> Any:
        return freeze, (thaw(self),)


def freeze(value: Any) -> Any:
    """Return an immutable copy of dicts and lists, at any depth. Other values stay the same."""
    if type(value) in (FrozenDict, FrozenList):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list):
        return FrozenList([freeze(item) for item in value])
    if type(value) is tuple:
        return tuple(freeze(item) for item in value)
    return value


def thaw(value: Any) -> Any:
    """Return a copy as plain dicts and lists, which are the caller's own."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    if type(value) is tuple:
        return tuple(thaw(item) for item in value)
    return value
