"""Events of AG2 as plain data, and back.

AG2's own deserialisation imports whatever module the data names. Here a name in data only selects a
class that the process has defined already: an event, or one of the few classes in `_VALUES`. The
data of an event whose class is missing is kept in AG2's `UnknownEvent`.
"""

from __future__ import annotations

import builtins
import dataclasses
import datetime as dt
import warnings
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_type_hints
from uuid import UUID

import ag2.events
from ag2.events import (
    BaseEvent,
    BinaryResult,
    Field,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextInput,
    ToolCallEvent,
    ToolCallsEvent,
    ToolResult,
    ToolResultEvent,
    UnknownEvent,
    Usage,
)
from ag2.task import TaskSpec
from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast.errors import HoldfastWarning, UsageError

TYPE = "$type"
CREATED = "created_at"
_DICT = "dict"
_ERROR = "error"
_MODEL = "model"
_VALUES = {item.__name__: item for item in (BinaryResult, TaskSpec, ToolResult, Usage)}
_AS_THEY_ARE = (str, int, float, bool, bytes, UUID, dt.datetime, dt.date, type(None))


def dump_event(event: BaseEvent) -> dict[str, Any]:
    """Return an event as plain data. Fields that have their default value are left out."""
    return {**_dump_event(event), CREATED: event.created_at}


def load_event(recorded: Mapping[str, Any]) -> Any:
    """Return the event of plain data. Nothing is imported."""
    created = recorded.get(CREATED)
    try:
        return _load_event(recorded, {CREATED: created} if isinstance(created, float) else {})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"a stored event can't be loaded: {recorded.get(TYPE)!r:.80} does not take what was stored ({error}). "
            "Another version of AG2 may have stored it"
        ) from error


def load_response(recorded: Mapping[str, Any]) -> ModelResponse:
    """Return the answer of a model of plain data; raise for any other event."""
    loaded = load_event(recorded)
    if not isinstance(loaded, ModelResponse):
        raise UsageError(f"a stored answer of the model is a {type(loaded).__name__}")
    return loaded


def dump_value(value: Any) -> Any:
    """Return a value within an event as data that the store knows.

    Objects of the user's own classes become what a model reads of them: their JSON.
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, BaseEvent):
        return _dump_event(value)
    if isinstance(value, dict):
        plain = {name: dump_value(item) for name, item in value.items()}
        return {TYPE: _DICT, "value": plain} if TYPE in plain else plain
    if isinstance(value, list | tuple):
        return [dump_value(item) for item in value]
    if isinstance(value, Exception):
        return {TYPE: _ERROR, "class": type(value).__name__, "message": str(value)}
    if isinstance(value, Enum):
        return dump_value(value.value)
    if _VALUES.get(type(value).__name__) is type(value):
        given = {item.name: (getattr(value, item.name), item) for item in dataclasses.fields(value)}
        kept = {name: item for name, (item, field) in given.items() if item not in (None, {}, field.default)}
        return {TYPE: type(value).__name__, **{name: dump_value(item) for name, item in kept.items()}}
    if isinstance(value, BaseModel):
        return {TYPE: _MODEL, "value": value.model_dump(mode="json", warnings=False)}
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError as error:
        raise UsageError(
            f"an event of AG2 has a {type(value).__name__}, which can't be stored: {error}. Let the tool return a "
            "text, plain data, or a model of pydantic"
        ) from error


def load_value(value: Any, about: Mapping[str, Any] | None = None) -> Any:
    """Return the value of plain data; `about` has the fields that events within it inherit."""
    if isinstance(value, list):
        return [load_value(item, about) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(TYPE)
    if kind is None:
        return {name: load_value(item, about) for name, item in value.items()}
    if kind == _DICT:
        return {name: load_value(item, about) for name, item in value["value"].items()}
    if kind == _MODEL:
        return value["value"]
    if kind == _ERROR:
        return _load_error(str(value.get("class")), str(value.get("message")))
    if kind in _VALUES:
        names = {field.name for field in dataclasses.fields(_VALUES[kind])}
        return _VALUES[kind](**{name: load_value(item, about) for name, item in value.items() if name in names})
    return _load_event(value, about or {})


# -- events ------------------------------------------------------------------------------------------------------------


def _dump_event(event: BaseEvent) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        return {TYPE: event.type_name, **event.data}
    plain = {TYPE: _name_of(type(event))}
    kind: Any = type(event)
    for name, field in _fields_of(kind).items():
        value = getattr(event, name)
        if value is not None and value != field.get_default():
            plain[name] = dump_value(value)
    return plain


def _load_event(recorded: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
    name = str(recorded.get(TYPE))
    kind = _find_class(name)
    if kind is None:
        warnings.warn(
            f"the class of an event is not defined here: {name:.80}. The event is kept, but the model does not get "
            "it. Import the module that defines the class before the agent runs",
            HoldfastWarning,
            stacklevel=2,
        )
        data = {field: value for field, value in recorded.items() if field not in (TYPE, CREATED)}
        return UnknownEvent(type_name=name, data=data, **about)
    fields: Any = _fields_of(kind)
    given = {field: _load_field(kind, field, value, about) for field, value in recorded.items() if field in fields}
    made = kind(**given, **about)
    if not _is_sound(made, given):
        raise TypeError(f"its fields are none of a {name:.80}")
    return made


def _is_sound(event: Any, given: Mapping[str, Any]) -> bool:
    """Return whether AG2 can work with the fields of an event: its classes do not check them."""
    if isinstance(event, ToolCallEvent):
        return all(isinstance(given.get(field, ""), str) for field in ("id", "name", "arguments"))
    if isinstance(event, ToolCallsEvent):
        return all(isinstance(call, ToolCallEvent) for call in given.get("calls", ()))
    if isinstance(event, ModelResponse):
        has_message = event.message is None or isinstance(event.message, ModelMessage)
        return has_message and isinstance(event.tool_calls, ToolCallsEvent)
    if isinstance(event, ModelRequest):
        return all(isinstance(part, BaseEvent) for part in given.get("parts", ()))
    if isinstance(event, ToolResultEvent):
        parts = getattr(given.get("result", ToolResult()), "parts", [None])
        return all(isinstance(part, BaseEvent) for part in parts)
    return not isinstance(event, (ModelMessage, TextInput)) or isinstance(given.get("content", ""), str)


def _load_field(kind: type, field: str, value: Any, about: Mapping[str, Any]) -> Any:
    """Return the value of a field; a model of pydantic by the type that the event's class declares."""
    if isinstance(value, dict) and value.get(TYPE) == _MODEL:
        adapter = _adapter_of(kind, field)
        return value["value"] if adapter is None else adapter.validate_python(value["value"])
    return load_value(value, about)


def _load_error(name: str, message: str) -> Exception:
    """Return an error of a built-in class; any other class becomes `Exception`."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            made = kind(message)
        except TypeError:
            return Exception(message)
        if str(made) == message:
            return made
    return Exception(message)


@cache
def _fields_of(kind: Any) -> dict[str, Any]:
    """Return the public fields of a class of events, but for the time."""
    found = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items() if _is_field(value)}
    return {name: value for name, value in found.items() if not name.startswith("_") and name != CREATED and value.init}


def _is_field(value: Any) -> bool:
    return isinstance(value, Field)


@cache
def _adapter_of(kind: type, field: str) -> TypeAdapter[Any] | None:
    """Return what makes the models of pydantic that a field is declared with; None if it has none."""
    base = next(class_ for class_ in kind.__mro__ if field in vars(class_))
    try:
        hint = get_type_hints(base).get(field)
    except NameError:  # a name that the module imports for type checkers only
        return None
    models = [arg for arg in get_args(hint) or (hint,) if isinstance(arg, type) and issubclass(arg, BaseModel)]
    union: Any = Union[tuple(models)] if models else None  # noqa: UP007  # of types that are known at run time
    return None if union is None else TypeAdapter(union)


def _name_of(kind: type) -> str:
    is_exported = getattr(ag2.events, kind.__name__, None) is kind
    return kind.__name__ if is_exported else f"{kind.__module__}.{kind.__qualname__}"


_classes: dict[str, type] = {}


def _find_class(name: str) -> type | None:
    """Return the class of events that has this name, if the process has defined it."""
    if name not in _classes:
        _classes.update({_name_of(subclass): subclass for subclass in _subclasses(BaseEvent)})
    return _classes.get(name)


def _subclasses(kind: type) -> Iterator[type]:
    class_: type
    for class_ in kind.__subclasses__():
        yield class_
        yield from _subclasses(class_)
