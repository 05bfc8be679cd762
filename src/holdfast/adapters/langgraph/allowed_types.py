"""The classes that the saver stores and restores, in addition to plain data.

Known ones have names of our own: LangChain's messages, LangGraph's channel values, and types of the
standard library that LangGraph stores, too. Then come the classes that the program gives as
`allow=[...]` or has registered with `holdfast.register`. Then dataclasses, attrs classes, pydantic
models, Enums and NamedTuples defined in a module: by module and name. Objects that are stored
without their class are in plain_values.py.

On a read, the name is looked up among the modules that this process has imported, by plain
dictionary lookups. Stored data can neither import a module nor run code of one.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import langchain_core.documents
from langgraph.store.base import Item

from holdfast.adapters.langgraph import plain_values, standard_values
from holdfast.adapters.langgraph.message_fields import MESSAGE_CLASSES, MessageKind
from holdfast.codec import standard_types
from holdfast.codec.builtin_types import BUILTIN_TYPES
from holdfast.codec.class_kinds import kind_of
from holdfast.codec.nested_classes import classes_in_fields
from holdfast.codec.registry import RegisteredType, TypeRegistry, default_types
from holdfast.codec.unsupported import Refusal
from holdfast.errors import HoldfastWarning, UnknownTypeError, UsageError

_GRAPH_TYPES = ("Command", "Interrupt", "Overwrite", "PregelTask", "StateSnapshot", "TimeoutPolicy")
_ERROR = "langgraph:error"
_MAX_NAME = 200
_MOST_WARNED = 1000  # classes whose user was warned


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
        decode=lambda parts: _item({slot: parts[slot] for slot in slots}),
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


def _item(parts: dict[str, Any]) -> Item:
    """Return an item whose namespace is a plain sequence: its class makes a tuple of any."""
    return Item(**{**parts, "namespace": standard_values.arguments_of(parts["namespace"])})


def _without_code(value: collections.defaultdict[Any, Any]) -> list[Any]:
    """Return the stored form of a defaultdict.

    One that makes its values by code comes back without the factory; LangGraph gives a dict.
    """
    try:
        parts: list[Any] = _EXACT_DEFAULTDICT.take_apart(value)
    except Refusal:
        return [None, dict(value)]
    return parts


_EXACT_DEFAULTDICT = cast("RegisteredType", standard_types.entry_of(collections.defaultdict))
_DEFAULTDICT = copy.copy(_EXACT_DEFAULTDICT)
_DEFAULTDICT.take_apart = _without_code


class SaverTypes(TypeRegistry):
    """A registry that admits classes when it first meets one of their objects."""

    def __init__(self, allow: Iterable[Any] = ()) -> None:
        super().__init__()
        register_known(self)
        self._register_plain()
        for allowed in allow:
            self._allow(allowed)
        self._warned: set[str] = set()
        self.by_class = _Admission(self._admit, self.by_class)

    def _register_plain(self) -> None:
        for cls, (encode, decode) in standard_values.STORED.items():
            self.register(cls, f"python:{cls.__name__}", encode=encode, decode=decode)
        self.register(BaseException, _ERROR, encode=repr, decode=lambda text: text)

    def _allow(self, allowed: Any) -> None:
        """Allow objects of a class to be stored: a class, or its module and name as in LangGraph's allowlists."""
        cls = allowed
        if isinstance(allowed, tuple):
            cls = _find_imported(".".join(allowed[:-1]), allowed[-1])
            if cls is None or not has_fields(cls):
                return
        if not isinstance(cls, type):
            raise UsageError(f"allow has {cls!r:.60}: it takes classes")
        if cls in self.by_class or cls in default_types.by_class:
            return
        self.register(cls, _name(cls))

    def _register_nested(self, cls: type[Any]) -> None:
        """Register the data classes of its fields that can't be found by name; others are admitted as is."""
        for nested in classes_in_fields(cls):
            if not is_found_by_name(nested):
                with contextlib.suppress(UsageError):  # reported when an object of it occurs
                    self._allow(nested)

    def named(self, name: str) -> RegisteredType:
        known = self.by_name.get(name) or default_types.by_name.get(name) or standard_types.find_entry(name)
        if known is not None:
            return known
        module, _, qualname = name.partition(":")
        cls = _find_imported(module, qualname)
        if cls is not None and has_fields(cls):
            with contextlib.suppress(Refusal):  # its objects could not be rebuilt
                admitted = self.by_class.get(cls)
                if admitted is not None and admitted.name == name:
                    return admitted
        raise UnknownTypeError(
            f"The data holds an object of the type {name[:_MAX_NAME]!r}, and this program has imported no such class. "
            "Import the module that defines it before reading, or give the class: HoldfastSaver(..., allow=[...])"
        )

    def _admit(self, cls: type[Any]) -> RegisteredType:
        """Return the entry for a class that is not registered yet.

        Raise KeyError if the class is unknown, `Refusal` if its objects could be stored but not be
        read back.
        """
        registered = default_types.by_class.get(cls)
        if registered is not None and not (cls in default_types.along and is_found_by_name(cls)):
            return registered
        if cls is collections.defaultdict:
            return _DEFAULTDICT
        kept = standard_types.entry_of(cls)
        if kept is not None:
            return kept
        if issubclass(cls, BaseException):  # as LangGraph does: of an error its text is kept
            return self.by_name[_ERROR]
        if cls in BUILTIN_TYPES:
            raise KeyError(cls)
        if not has_fields(cls):
            plain = plain_values.subclass_entry(cls)
            if plain is None:
                raise KeyError(cls)
            return plain
        name = _name(cls)
        if not is_found_by_name(cls):
            plain = plain_values.local_entry(cls)
            self._warn_of(cls)
            return plain
        try:
            entry = RegisteredType(cls, name, kind_of(cls, name))
        except UsageError as error:
            raise Refusal(str(error), f"See holdfast.register for {cls.__name__}") from error
        self.by_name[name] = entry
        return entry

    def _warn_of(self, cls: type[Any]) -> None:
        name = _name(cls)
        if name in self._warned:
            return
        warnings.warn(
            f"the class {cls.__qualname__} can't be found by its name in the module {cls.__module__}, so no later "
            "process could give its objects back: the saver keeps them as plain data. Define the class at the top of "
            f"a module, or give it to the saver: HoldfastSaver(..., allow=[{cls.__name__}])",
            HoldfastWarning,
            stacklevel=2,
        )
        if len(self._warned) < _MOST_WARNED:  # not before: a warning may be turned into an error
            self._warned.add(name)


class _Admission(dict[type[Any], RegisteredType]):
    """The known classes and their entries. A missing class is examined once."""

    def __init__(self, admit: Callable[[type[Any]], RegisteredType], known: Mapping[type[Any], RegisteredType]) -> None:
        super().__init__(known)
        self._admit = admit
        self._unknown: set[type[Any]] = set()

    def __missing__(self, cls: type[Any]) -> RegisteredType:
        if cls in self._unknown:
            raise KeyError(cls)
        try:
            entry = self._admit(cls)
        except KeyError:
            if cls.__module__ == "builtins" or cls in BUILTIN_TYPES:  # others may be registered later
                self._unknown.add(cls)
            raise
        if not entry.is_plain or is_found_by_name(
            cls
        ):  # a function makes its classes again at each call: they are not held
            self[cls] = entry
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
        except (KeyError, Refusal):  # a refusal is raised where its path is known
            return False
        return True


def has_fields(cls: type[Any]) -> bool:
    """Return whether objects of the class are data by their nature, and are rebuilt without its code."""
    from enum import Enum

    held = cls.__dict__
    return (
        issubclass(cls, Enum)
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or "__dataclass_fields__" in held
        or "__attrs_attrs__" in held
        or "__pydantic_core_schema__" in held
    )


def is_found_by_name(cls: type[Any]) -> bool:
    """Return whether another process that imports the class's module finds it there."""
    return _find_imported(cls.__module__, cls.__qualname__) is cls and len(_name(cls)) <= _MAX_NAME


def _name(cls: type[Any]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _find_imported(module: str, qualname: str) -> type[Any] | None:
    """Return the class of that name, if its module is imported.

    Only dictionaries are searched: a module may have a `__getattr__` that imports.
    """
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        held = getattr(found, "__dict__", None) if found is not None else None
        found = held.get(part) if held is not None else None
    return found if isinstance(found, type) and found.__module__ == module else None
