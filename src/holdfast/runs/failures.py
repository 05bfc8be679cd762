"""Failures as records: what was raised, and how it is raised again.

No stored byte decides which code runs: only exceptions of Python's own, and classes that the caller names, are made anew.
Anything else is a `StepFailedError` that says what it was.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.errors import StepFailedError, UnsupportedValueError

_BUILTIN = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, ExceptionGroup | UnicodeError)
}


def packed(codec: Codec, error: BaseException) -> bytes:
    kind, message = name_of(error), str(error)
    try:
        return codec.encode([kind, message, list(error.args)], "exception")
    except UnsupportedValueError:
        return codec.encode([kind, message, None], "exception")


def rebuilt(codec: Codec, payload: bytes, place: str, raises: Sequence[type[Exception]] = ()) -> Exception:
    kind, message, args = codec.decode(payload)
    known = next((one for one in raises if _class_name(one) == kind), None) or _BUILTIN.get(
        kind.removeprefix("builtins.")
    )
    if known is not None and args is not None:
        try:
            return known(*args)
        except Exception:  # its __init__ takes something else than its args
            known = None
    return StepFailedError(f"{place} failed before the run was resumed: {kind}: {message}", kind)


def name_of(error: BaseException) -> str:
    return _class_name(type(error))


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what it was raised from or while handling, and the members of groups."""
    waiting: list[Any] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def _class_name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
