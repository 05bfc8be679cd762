"""Which classes the saver stores and gives back, beside plain data.

Known ones by names of our own: LangChain's messages, what LangGraph puts into channels, and types of the standard
library that LangGraph keeps, too. Then what the program gives as `allow=[...]` or has registered with
`holdfast.register`. Then dataclasses, attrs classes, pydantic models, Enums and NamedTuples that stand in a module: by
module and name. When they are read, the name is looked up among the modules that this process has imported, in what the
module holds, by plain dictionary lookups. Nothing is imported, and none of their code is run, because data names them.
"""

from __future__ import annotations

import collections
import datetime as dt
import functools
import ipaddress
import re
import sys
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import langchain_core.documents
from langgraph.store.base import Item

from holdfast.adapters.langgraph.messages import MESSAGE_CLASSES, MessageKind
from holdfast.codec.builtin import BUILTIN_TYPES
from holdfast.codec.kinds import kind_of
from holdfast.codec.refusals import Refused
from holdfast.codec.types import RegisteredType, TypeRegistry, default_types
from holdfast.errors import UnknownTypeError, UsageError

_GRAPH_TYPES = ("Command", "Interrupt", "Overwrite", "PregelTask", "StateSnapshot", "TimeoutPolicy")
_ADDRESSES = tuple(
    getattr(ipaddress, f"{version}{what}")
    for version in ("IPv4", "IPv6")
    for what in ("Address", "Interface", "Network")
)
_ERROR = "langgraph:error"
_MAX_NAME = 200


@functools.cache
def _message_kinds() -> dict[type[Any], MessageKind]:
    return {cls: MessageKind(cls, f"langchain:{cls.__name__}") for cls in MESSAGE_CLASSES}


def register_known(types: TypeRegistry) -> None:
    """Registers LangChain's and LangGraph's own classes, by names that stay when they move."""
    for message, kind in _message_kinds().items():
        types.register(message, f"langchain:{message.__name__}", encode=kind.encode, decode=kind.decode)
    types.register(langchain_core.documents.Document, "langchain:Document")
    slots = ("namespace", "key", "value", "created_at", "updated_at")
    types.register(
        Item,
        "langgraph:Item",
        encode=lambda item: {slot: getattr(item, slot) for slot in slots},
        decode=lambda parts: Item(**{slot: parts[slot] for slot in slots}),
    )
    try:
        import langgraph.types as graph_types
    except ImportError:  # only the checkpointer's part of LangGraph is installed
        return
    for name in _GRAPH_TYPES:
        types.register(getattr(graph_types, name), f"langgraph:{name}")
    types.register(
        graph_types.Send,
        "langgraph:Send",
        encode=lambda send: [send.node, send.arg, send.timeout],
        decode=lambda parts: graph_types.Send(parts[0], parts[1], timeout=parts[2]),
    )


class SaverTypes(TypeRegistry):
    """A registry that admits classes when it first meets one of their objects."""

    def __init__(self, allow: Iterable[Any] = ()) -> None:
        super().__init__()
        register_known(self)
        self.plain = MESSAGE_CLASSES
        self._register_plain()
        for allowed in allow:
            self._allow(allowed)
        self.by_class = _Admitting(self._admit, self.by_class)

    def _register_plain(self) -> None:
        plain: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
            collections.deque: (lambda value: [list(value), value.maxlen], lambda parts: collections.deque(*parts)),
            collections.OrderedDict: (lambda value: list(value.items()), collections.OrderedDict),
            collections.Counter: (dict, collections.Counter),
            dt.timezone: (lambda value: list(value.__getinitargs__()), lambda parts: dt.timezone(*parts)),
            zoneinfo.ZoneInfo: (lambda value: value.key, zoneinfo.ZoneInfo),
            re.Pattern: (lambda value: [value.pattern, value.flags], lambda parts: re.compile(*parts)),
            **{address: (str, address) for address in _ADDRESSES},
        }
        for cls, (encode, decode) in plain.items():
            self.register(cls, f"python:{cls.__name__}", encode=encode, decode=decode)
        self.register(BaseException, _ERROR, encode=repr, decode=lambda text: text)

    def _allow(self, allowed: Any) -> None:
        """Lets objects of this class be stored: a class, or its module and name, as LangGraph's allowlists have it."""
        cls = allowed
        if isinstance(allowed, tuple):
            cls = _imported(".".join(allowed[:-1]), allowed[-1])
            if cls is None or not has_fields(cls):
                return
        if not isinstance(cls, type):
            raise UsageError(f"allow has {cls!r:.60}: it takes classes")
        if cls in self.by_class or cls in default_types.by_class:
            return
        self.register(cls, _name(cls))

    def named(self, name: str) -> RegisteredType:
        known = self.by_name.get(name) or default_types.by_name.get(name)
        if known is not None:
            return known
        module, _, qualname = name.partition(":")
        cls = _imported(module, qualname)
        if cls is not None and has_fields(cls):
            admitted = self.by_class.get(cls)
            if admitted is not None and admitted.name == name:
                return admitted
        raise UnknownTypeError(
            f"The data holds an object of the type {name[:_MAX_NAME]!r}, and this program has imported no such class. "
            "Import the module that defines it before reading, or give the class: HoldfastSaver(..., allow=[...])"
        )

    def _admit(self, cls: type[Any]) -> RegisteredType:
        """The entry for a class that was not met before; KeyError if nothing is known of it, `Refused` if its objects
        could be stored but not be given back."""
        registered = default_types.by_class.get(cls)
        if registered is not None:
            return registered
        if issubclass(cls, BaseException):  # as LangGraph does: of an error its text is kept
            return self.by_name[_ERROR]
        if cls in BUILTIN_TYPES or not has_fields(cls):
            raise KeyError(cls)
        name = _name(cls)
        if _imported(cls.__module__, cls.__qualname__) is not cls or len(name) > _MAX_NAME:
            raise Refused(
                f"the class {cls.__qualname__} can't be found by its name in the module {cls.__module__}, so another "
                "process could not give its objects back",
                f"Define it at the top of a module, or give it to the saver: HoldfastSaver(..., allow=[{cls.__name__}])",
            )
        try:
            entry = RegisteredType(cls, name, kind_of(cls, name))
        except UsageError as error:
            raise Refused(str(error), f"See holdfast.register for {cls.__name__}") from error
        self.by_name[name] = entry
        return entry


class _Admitting(dict[type[Any], RegisteredType]):
    """Classes by what is known of them. One that is not there is looked at once."""

    def __init__(self, admit: Callable[[type[Any]], RegisteredType], known: Mapping[type[Any], RegisteredType]) -> None:
        super().__init__(known)
        self._admit = admit
        self._unknown: set[type[Any]] = set()

    def __missing__(self, cls: type[Any]) -> RegisteredType:
        if cls in self._unknown:
            raise KeyError(cls)
        try:
            entry = self[cls] = self._admit(cls)
        except KeyError:
            if cls.__module__ == "builtins" or cls in BUILTIN_TYPES:  # others may be registered later
                self._unknown.add(cls)
            raise
        return entry

    def get(self, cls: type[Any], default: Any = None) -> Any:
        try:
            return self[cls]
        except KeyError:
            return default

    def __contains__(self, cls: object) -> bool:
        if not isinstance(cls, type):
            return False
        try:
            self[cls]
        except (KeyError, Refused):  # a refusal is raised where its path is known
            return False
        return True


def has_fields(cls: type[Any]) -> bool:
    """Whether objects of the class are data by their nature, and are rebuilt without its code."""
    from enum import Enum

    held = cls.__dict__
    return (
        issubclass(cls, Enum)
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or "__dataclass_fields__" in held
        or "__attrs_attrs__" in held
        or "__pydantic_core_schema__" in held
    )


def _name(cls: type[Any]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _imported(module: str, qualname: str) -> type[Any] | None:
    """The class of that name, if its module is imported. Only dictionaries are looked into: a module may have a
    `__getattr__` that imports."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        held = getattr(found, "__dict__", None) if found is not None else None
        found = held.get(part) if held is not None else None
    return found if isinstance(found, type) and found.__module__ == module else None
