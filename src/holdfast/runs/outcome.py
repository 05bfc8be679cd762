"""Recorded outcomes: results and failures of steps and effects, as a journal stores them.

Every life of a program gets the same value for a result. No stored byte decides which code runs:
only these exceptions are made again: Python's own, those of holdfast, and the classes that the
caller names, with their subclasses. Any other one becomes a `StepFailedError` that names it.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast import errors
from holdfast.codec.codec import Codec
from holdfast.errors import HoldfastError, StepFailedError, UnsupportedValueError

_log = logging.getLogger("holdfast")
_OWN = {
    f"{kind.__module__}.{kind.__qualname__}": kind
    for kind in (*vars(builtins).values(), *vars(errors).values())
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and not issubclass(kind, ExceptionGroup | UnicodeError | UnsupportedValueError)
}


def encode_result(codec: Codec, result: Any, subject: str) -> tuple[bytes, Any]:
    """Return the result encoded, and the value that it decodes to: the result itself, or plain data.

    A pydantic model of an unregistered class is stored as plain data. The life that made it gets
    that, too, so that all lives of the program see the same. A value that can't be stored even so
    is refused.
    """
    try:
        return codec.encode(result, subject), result
    except UnsupportedValueError as error:
        for plain in _as_plain_data(result):
            try:
                encoded = codec.encode(plain, subject)
            except UnsupportedValueError:
                continue
            _log.warning("%s was kept as plain data (`model_dump`), and is given as such: %s", subject, error)
            return encoded, plain
        raise


def _as_plain_data(result: Any) -> Iterator[Any]:
    """Yield the result without pydantic models: dumped as Python values, then as JSON values."""
    for mode in ("python", "json"):
        plain = result
        with contextlib.suppress(Exception):  # a serializer of the model's own failed, or it holds itself
            plain = _simplify_value(result, mode)
        if plain is not result:
            yield plain


def _simplify_value(value: Any, mode: str) -> Any:
    if hasattr(type(value), "__pydantic_core_schema__") and callable(getattr(value, "model_dump", None)):
        return value.model_dump(mode=mode)
    kind = type(value)
    if kind is dict:
        parts = {key: _simplify_value(item, mode) for key, item in value.items()}
        return value if all(parts[key] is item for key, item in value.items()) else parts
    if kind in (list, tuple):
        plain = [_simplify_value(item, mode) for item in value]
        return value if all(item is was for item, was in zip(plain, value, strict=True)) else kind(plain)
    return value


def encode_error(codec: Codec, error: BaseException) -> bytes:
    """Encode an exception: class, message, arguments, attributes, and the base classes."""
    kind, message = error_name(error), message_of(error)
    bases = [_class_name(class_) for class_ in type(error).__mro__[1:] if issubclass(class_, Exception)]
    attributes = {name: value for name, value in vars(error).items() if name != "__notes__"}
    message = codec.redact_text(message, "exception")
    for args, kept in ((list(error.args), attributes), (list(error.args), None), (None, attributes), (None, None)):
        try:
            parts = [codec.redact(part, "exception") for part in (args, kept)]
            return codec.internal.encode([kind, message, *parts, bases], "exception")
        except UnsupportedValueError:
            continue
    raise AssertionError("texts can always be kept")


def decode_error(codec: Codec, payload: bytes, place: str, raises: Sequence[type[Exception]] = ()) -> Exception:
    """Return the exception that was recorded, or a `StepFailedError` if its class is not known.

    `raises` are the classes that the caller names.
    """
    kind, message, args, *more = codec.decode(payload)
    attributes, bases = more or (None, [])
    known = _find_class(kind, raises)
    if known is None:
        # A class that is gone, or not imported yet: the caller still handles what it was a subclass
        # of.
        known = next((class_ for class_ in raises if _class_name(class_) in bases), None)
    if known is None or (args is None and known not in raises and not _is_subclass(known, raises)):
        return StepFailedError(f"{place} failed before the run was resumed: {kind}: {message}", kind)
    return _make_error(known, (message,) if args is None else tuple(args), attributes)


def _find_class(kind: str, raises: Sequence[type[Exception]]) -> type[Exception] | None:
    waiting = list(raises)
    while waiting:
        class_ = waiting.pop()
        if _class_name(class_) == kind:
            return class_
        waiting += class_.__subclasses__()
    return _OWN.get(kind)


def _is_subclass(kind: type[Exception], of: Sequence[type[Exception]]) -> bool:
    return any(issubclass(kind, class_) for class_ in of)


def _make_error(kind: type[Exception], args: tuple[Any, ...], attributes: dict[str, Any] | None) -> Exception:
    try:
        made = kind(*args)
    except Exception:  # its __init__ takes something else than its args
        made = kind.__new__(kind, *args)
        made.args = args
    if made.args != args:  # its __init__ makes a message of what it is given: it was given something else then
        made.args = args
    if attributes and not issubclass(kind, HoldfastError):
        vars(made).update(attributes)
    return made


def error_name(error: BaseException) -> str:
    return _class_name(type(error))


def message_of(error: BaseException) -> str:
    """Return the message of an exception, whose class may be unable to make one."""
    try:
        return str(error)
    except Exception as raised:
        return f"its message can't be shown: {type(raised).__name__} was raised"


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, its causes and contexts, and the members of groups."""
    waiting: list[Any] = [error]
    seen: set[int] = set()
    while waiting:
        group = waiting.pop()
        if group is None or id(group) in seen:
            continue
        seen.add(id(group))
        yield group
        waiting += [group.__cause__, group.__context__]
        if isinstance(group, BaseExceptionGroup):
            waiting += group.exceptions


def _class_name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
