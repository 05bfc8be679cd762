"""Changes that a hook or tool makes in the `State` of an agent, recorded and applied again."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from haystack.components.agents.state import State, replace_values

from holdfast.adapters.haystack.values import dump_value, load_value

_OF_THE_PROCESS = ("tools", "hook_context")  # the agent puts them there; they are objects of the process
_MISSING = object()


def copy_state(state: State | None) -> dict[str, Any]:
    """Return the values of a state; a later change of a list or dict leaves the copy alone."""
    return {} if state is None else {name: _copy(value) for name, value in state.data.items()}


def compare_states(before: Mapping[str, Any], state: State | None) -> dict[str, Any]:
    """Return what changed since `copy_state`: values that were set, and the changed parts of lists."""
    changes: dict[str, Any] = {}
    for name, value in {} if state is None else state.data.items():
        old = before.get(name, _MISSING)
        if name in _OF_THE_PROCESS or _is_same(old, value):
            continue
        changes[name] = _compare_lists(old, value) if type(old) is type(value) is list else {"set": dump_value(value)}
    return changes


def apply_changes(changes: Mapping[str, Any], state: State) -> None:
    """Change a state as `compare_states` has found it."""
    for name, change in changes.items():
        if "set" in change:
            value = load_value(change["set"])
        else:
            value = list(state.data.get(name) or [])
            value[change["first"] : change["end"]] = load_value(change["new"])
        state.set(name, value, handler_override=replace_values)


def _compare_lists(old: list[Any], value: list[Any]) -> dict[str, Any]:
    """Return the part of a list that was replaced. Messages around it stay the same objects."""
    shorter = min(len(old), len(value))
    first = next((at for at in range(shorter) if old[at] is not value[at]), shorter)
    after = next((at for at in range(shorter - first) if old[-1 - at] is not value[-1 - at]), shorter - first)
    new = dump_value(value[first : len(value) - after])
    return {"first": first, "end": len(old) - after, "new": new}


def _copy(value: Any) -> Any:
    return copy.copy(value) if type(value) in (list, dict, set) else value


def _is_same(old: Any, value: Any) -> bool:
    """Return whether two values are the same object, or lists or dicts of the same objects."""
    if old is value and type(value) not in (list, dict, set):
        return True
    if type(old) is not type(value):
        return False
    if type(value) is list:
        return len(old) == len(value) and all(a is b for a, b in zip(old, value, strict=True))
    if type(value) is dict:
        return old.keys() == value.keys() and all(old[name] is item for name, item in value.items())
    # Others need not compare as a bool, such as arrays.
    return isinstance(value, str | int | float | set) and old == value
