"""The arguments of a function that the program gave: their names, defaults and schema."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.errors import UsageError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PLAIN = frozenset((str, bytes, int, float, bool, type(None)))
PROVIDER_KEY = "idempotency_key"
"""A function with a parameter of this name is given the effect's provider key."""


def bind_arguments(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names, defaults included.

    Positional ones without a name are known by their position.
    """
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
            named.update({f"{name}[{number}]": item for number, item in enumerate(value)})
        else:
            named[name] = value
    named.pop(PROVIDER_KEY, None)
    return named


def without_defaults(fn: Callable[..., Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that differ from the function's defaults.

    So a parameter that is added with a default changes no call.
    """
    signature = _signature(fn)
    known = {} if signature is None else signature.parameters
    return {name: value for name, value in named.items() if name not in known or not _is_default(value, known[name])}


def _is_default(value: Any, parameter: inspect.Parameter) -> bool:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return False
    try:
        return value is default or (type(value) is type(default) and bool(value == default))
    except Exception:  # values that can't be compared, such as arrays, count as given
        return False


def function_name(fn: Callable[..., Any]) -> str | None:
    """Return the name of a function that is the same in every process; None if it has none.

    A partial is known by its function, an object by its class.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    name, module = getattr(named, "__qualname__", None), getattr(named, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        return None
    return f"{module}.{name}"


def spread(fn: Callable[..., Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments for arguments by name: the inverse of `bound`.

    Whether the function takes them is checked by `bound`.
    """
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


def choose_arguments(
    arguments: Mapping[str, Any], identity: Sequence[str] | None, volatile: Sequence[str], subject: str
) -> dict[str, Any]:
    """Return the identifying arguments: those named by `identity`, or all but the `volatile` ones."""
    for name in (*(identity or ()), *volatile):
        if name not in arguments:
            raise UsageError(
                f"{subject} has no argument {name!r:.60}: it has {', '.join(map(repr, arguments)) or 'none'}"
            )
    if identity is not None:
        return {name: arguments[name] for name in identity if name not in volatile}
    return {name: value for name, value in arguments.items() if name not in volatile}


def make_key_argument(fn: Callable[..., Any], key: str) -> dict[str, str]:
    """Return the provider key as a keyword argument, if the function takes it."""
    signature = _signature(fn)
    return {PROVIDER_KEY: key} if signature is not None and PROVIDER_KEY in signature.parameters else {}


def requires_key(fn: Callable[..., Any]) -> bool:
    """Return whether the function can't be called without a provider key."""
    signature = _signature(fn)
    parameter = None if signature is None else signature.parameters.get(PROVIDER_KEY)
    return parameter is not None and parameter.default is inspect.Parameter.empty


def is_coroutine(fn: Callable[..., Any]) -> bool:
    """Return whether a call gives an awaitable, as far as is known before."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    method = getattr(fn, "__call__", None)  # noqa: B004 - of an object that can be called
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(method)


def is_async(fn: Callable[..., Any]) -> UsageError:
    return UsageError(f"{fn!r:.100} is async: a run of a SyncClient calls plain functions. Use `Client`, and await")


def classes(parameter: str, given: Any) -> tuple[type[Exception], ...]:
    """Return one class of exceptions, or several, as a tuple."""
    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | type) else (given,)
    for class_ in found:
        if not isinstance(class_, type) or not issubclass(class_, Exception):
            raise UsageError(f"{parameter} has {class_!r:.60}: it takes classes of exceptions, such as (OSError,)")
    return found


def schema_hash(fn: Callable[..., Any], **facts: Any) -> str:
    """Return a hash of a tool's signature and declared options, the same in every process."""
    signature = _signature(fn)
    takes = None if signature is None else [_describe(parameter) for parameter in signature.parameters.values()]
    return hashlib.sha256(f"{takes!r} {sorted(facts.items())!r}".encode()).hexdigest()[:16]


def _describe(parameter: inspect.Parameter) -> tuple[str, ...]:
    """Return a parameter as texts that are the same in every process."""
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
