"""Calling what the program gave: which arguments it gets, and by which names they are known."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.errors import UsageError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PLAIN = frozenset((str, bytes, int, float, bool, type(None)))
PROVIDER_KEY = "idempotency_key"
"""A function with a parameter of this name is given the effect's provider key."""


def bound(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names, defaults included; positional ones that have no name by their position."""
    signature = _signature(fn)
    if signature is None:
        return {**{str(number): value for number, value in enumerate(args)}, **kwargs}
    given = dict(kwargs)
    if PROVIDER_KEY in signature.parameters:
        given.setdefault(PROVIDER_KEY, None)
    try:
        found = signature.bind(*args, **given)
    except TypeError as error:
        raise UsageError(f"{_name(fn)} can't be called so: {error}. It takes {signature}") from None
    found.apply_defaults()
    named: dict[str, Any] = {}
    for name, value in found.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}[{number}]": one for number, one in enumerate(value)})
        else:
            named[name] = value
    named.pop(PROVIDER_KEY, None)
    return named


def spread(fn: Callable[..., Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """`bound` the other way round: how a function is called with arguments by these names. Whether it takes them is for
    `bound` to say."""
    left = dict(named)
    given: list[Any] = []
    signature = _signature(fn)
    if signature is None:
        while str(len(given)) in left:
            given.append(left.pop(str(len(given))))
        return given, left
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            start = len(given)
            while (numbered := f"{name}[{len(given) - start}]") in left:
                given.append(left.pop(numbered))
        if name not in left or parameter.kind not in _POSITIONAL:
            break
        given.append(left.pop(name))
    return given, left


def chosen(
    arguments: Mapping[str, Any], identity: Sequence[str] | None, volatile: Sequence[str], what: str
) -> dict[str, Any]:
    """The arguments that make out which effect a call is: those named by `identity`, or all but the `volatile` ones."""
    for name in (*(identity or ()), *volatile):
        if name not in arguments:
            raise UsageError(f"{what} has no argument {name!r:.60}: it has {', '.join(map(repr, arguments)) or 'none'}")
    if identity is not None:
        return {name: arguments[name] for name in identity if name not in volatile}
    return {name: value for name, value in arguments.items() if name not in volatile}


def keyed(fn: Callable[..., Any], key: str) -> dict[str, str]:
    """The provider key as a keyword argument, if the function takes it."""
    signature = _signature(fn)
    return {PROVIDER_KEY: key} if signature is not None and PROVIDER_KEY in signature.parameters else {}


def requires_key(fn: Callable[..., Any]) -> bool:
    """Whether the function can't be called without a provider key."""
    signature = _signature(fn)
    parameter = None if signature is None else signature.parameters.get(PROVIDER_KEY)
    return parameter is not None and parameter.default is inspect.Parameter.empty


def is_coroutine(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await, as far as can be told before."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004 - looks at the method


def is_async(fn: Callable[..., Any]) -> UsageError:
    return UsageError(f"{fn!r:.100} is async: a run of a SyncClient calls plain functions. Use `Client`, and await")


def classes(what: str, given: Any) -> tuple[type[Exception], ...]:
    """One class of exceptions, or several."""
    found = (given,) if isinstance(given, type) else tuple(given)
    for one in found:
        if not isinstance(one, type) or not issubclass(one, Exception):
            raise UsageError(f"{what} has {one!r:.60}: it takes classes of exceptions, such as (OSError,)")
    return found


def schema_hash(fn: Callable[..., Any], **facts: Any) -> str:
    """Changes when what a tool takes, or what is declared about it, does; and not from one process to the next."""
    signature = _signature(fn)
    takes = None if signature is None else [_told(one) for one in signature.parameters.values()]
    return hashlib.sha256(f"{takes!r} {sorted(facts.items())!r}".encode()).hexdigest()[:16]


def _told(parameter: inspect.Parameter) -> tuple[str, ...]:
    """A parameter in words that are the same in every process: a default that is an object may be shown with its address."""
    annotation, default = parameter.annotation, parameter.default
    return (
        parameter.name,
        parameter.kind.name,
        annotation if isinstance(annotation, str) else inspect.formatannotation(annotation),
        repr(default) if type(default) in _PLAIN else f"a {type(default).__qualname__}",
    )


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # some builtins have none
        return None


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)
