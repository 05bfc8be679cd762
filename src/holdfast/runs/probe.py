"""The answers of probes, and the check of a probe before it is called.

A probe says whether an effect in doubt was carried out. A truth value can't: `False` would be a
result, and the payment lost.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from holdfast.errors import UsageError
from holdfast.model.effect import Done, NotDone, ProbeAnswer

RULE = "A probe returns Done(result) if the effect was carried out, and NOT_DONE if it certainly was not"


def is_answer(found: Any) -> bool:
    return isinstance(found, ProbeAnswer)


def describe_other_answer(found: Any) -> str:
    """Return the words for a return value that is no answer."""
    return f"its probe returned {found!r:.60}. {RULE}; if it raises, nothing is known"


def refuse_annotation(subject: str, probe: Callable[..., Any]) -> None:
    """Raise if the probe is annotated to return no answer.

    An answer that the annotation leaves open is checked when the probe is called.
    """
    members = _members(_return_annotation(probe))
    if members and all(_says_nothing(member) for member in members):
        returned = " | ".join("None" if member is type(None) else member.__qualname__ for member in members)
        raise UsageError(f"{subject}: its probe is annotated to return {returned}. {RULE}")


def _return_annotation(probe: Callable[..., Any]) -> Any:
    while isinstance(probe, functools.partial):
        probe = probe.func
    if not isinstance(probe, types.FunctionType | types.MethodType):
        probe = getattr(type(probe), "__call__", probe)  # noqa: B004 - an object's method is what is annotated
    try:
        return typing.get_type_hints(probe).get("return", Any)
    except Exception:  # names that can't be resolved, or no function at all: it is not known
        return Any


def _members(annotation: Any) -> list[Any]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return [member for arg in typing.get_args(annotation) for member in _members(arg)]
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (Awaitable, Coroutine):
        return _members(typing.get_args(annotation)[-1])
    return [annotation if origin is None else origin]


def _says_nothing(annotation: Any) -> bool:
    """Return whether the annotation is a class without answers among its instances."""
    if annotation is Any or not isinstance(annotation, type):
        return False
    return not any(issubclass(item, annotation) or issubclass(annotation, item) for item in (Done, NotDone))
