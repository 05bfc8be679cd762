"""Filters of a LangGraph store: which items a search finds, which namespaces match.

These are the rules of LangGraph's own stores.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langgraph.store.base import MatchCondition

from holdfast.errors import UsageError

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def has_all(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Return whether an item's value matches every key of a filter.

    A key matches by equality, or by its operators (`$gt` and others).
    """
    return all(_is_like(value.get(name), item) for name, item in (wanted or {}).items())


def _is_like(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(str(name).startswith("$") for name in wanted):
            return all(_applies(name, found, operand) for name, operand in wanted.items())
        return isinstance(found, dict) and all(_is_like(found.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(found) == len(wanted)
            and all(_is_like(item, other) for item, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)


def _applies(name: str, found: Any, operand: Any) -> bool:
    if name == "$eq":
        return bool(found == operand)
    if name == "$ne":
        return bool(found != operand)
    if name not in _ORDER:
        raise UsageError(f"unsupported operator in a filter: {name!r}. There are $eq, $ne, {', '.join(_ORDER)}")
    try:
        return _ORDER[name](float(found), float(operand))
    except (TypeError, ValueError):  # no number is neither more nor less than one
        return False


def is_named(namespace: Sequence[str], condition: MatchCondition) -> bool:
    """Return whether a namespace begins or ends with a path, in which `*` stands for any label."""
    path = condition.path
    if condition.match_type not in ("prefix", "suffix"):
        raise UsageError(f"unsupported match type: {condition.match_type!r}. There are 'prefix' and 'suffix'")
    if len(namespace) < len(path):
        return False
    labels = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(labels, path, strict=True))
