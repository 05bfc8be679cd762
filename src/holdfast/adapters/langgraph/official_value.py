"""A reader of values stored by LangGraph's own savers, which executes nothing that they name.

They are MessagePack (before 2025: JSON) in which an object is a module, a name, and the arguments
of a call. The official serializer imports the module and calls it, by default whatever it is. Here
a name is looked up in a list: LangGraph's own list of safe types, and the classes that the caller
gave. A value with any other name can't be read, and the reason says which class to give.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import ormsgpack
from langchain_core.messages import AIMessageChunk
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.adapters.langgraph.message_fields import MESSAGE_CLASSES
from holdfast.adapters.langgraph.standard_values import (
    BUILDERS,
    arguments_of,
    expands,
    has_unfinished_json,
    keywords_of,
)
from holdfast.codec.limits import Limits
from holdfast.codec.map_keys import keys_are_spread
from holdfast.codec.structure_check import STRUCTURE_DEPTH, check_structure

_SINGLE, _POSITIONAL, _KEYWORDS, _METHOD, _PYDANTIC_1, _PYDANTIC_2, _ARRAY, _SNAPSHOT = range(8)
_OBJECTS = (_SINGLE, _POSITIONAL, _KEYWORDS, _PYDANTIC_1, _PYDANTIC_2)
_MOMENT = ("datetime", "datetime", "fromisoformat")  # the one method that is ever called
_BY_NAME = {cls.__name__: cls for cls in MESSAGE_CLASSES}


_LIMITS = Limits()
# ormsgpack allows a depth of 1024 by itself, and starts counting again in each object. Objects
# nested in objects are searched first, so that the C stack holds.
_MAX_NESTING, _UNCHECKED_NESTING, _DEEPEST_INSIDE = 100, 3, 50
# A payload is copied once for each level that it is nested in.
_NESTED_TIMES, _NESTED_BYTES = 16, 16 * 1024 * 1024


class UnreadableError(ValueError):
    """Says why a stored value can't be read."""


class OfficialValueReader:
    """`allow` are classes of the program that wrote the values."""

    def __init__(self, allow: Iterable[type[Any]] = ()) -> None:
        self._allowed = {(cls.__module__, cls.__name__): cls for cls in allow}
        self._error: Exception | None = None
        self._nesting = self._room = 0

    def read(self, kind: Any, data: Any) -> Any:
        """Return the value of a typed column. Raise UnreadableError, and nothing else, for any content."""
        if data is not None and not isinstance(data, bytes | memoryview):
            raise UnreadableError(f"its value is stored as {type(data).__name__}, not as bytes")
        raw = b"" if data is None else bytes(data)
        if kind == "null":
            return None
        if kind == "bytes":
            return raw
        if kind == "bytearray":
            return bytearray(raw)
        if kind == "msgpack":
            return self._unpack(raw)
        if kind == "json":
            return self.read_json(raw)
        if kind == "pickle":
            raise UnreadableError("it is a pickle, and holdfast executes nothing that was stored")
        raise UnreadableError(f"it is stored as {kind!r:.40}, by a serializer of its own, perhaps encrypted")

    def read_json(self, data: Any) -> Any:
        """Return the value of JSON. Raise UnreadableError, and nothing else."""
        if not isinstance(data, bytes | str):
            raise UnreadableError(f"its JSON is stored as {type(data).__name__}, not as text")
        try:
            return json.loads(data, object_hook=self._revive)
        except UnreadableError:
            raise
        except Exception as error:
            raise UnreadableError(f"its JSON can't be read: {error!r:.200}") from error

    def _unpack(self, data: bytes) -> Any:
        self._error, self._nesting, self._room = None, 0, _NESTED_TIMES * len(data) + _NESTED_BYTES
        try:
            if len(data) > _LIMITS.max_items:  # each item takes at least a byte
                check_structure(data, STRUCTURE_DEPTH, _LIMITS.max_items)
            return self._decode(data)
        except Exception as error:  # ormsgpack's own words for what the hook raised
            raise self._error or UnreadableError(f"its MessagePack can't be read: {error}") from error

    def _decode(self, data: bytes) -> Any:
        if not keys_are_spread(data):
            raise UnreadableError("it holds a map whose keys can't be told apart")
        return ormsgpack.unpackb(data, ext_hook=self._hook, option=ormsgpack.OPT_NON_STR_KEYS)

    def _hook(self, code: int, data: bytes) -> Any:
        try:
            self._nesting += 1
            self._room -= len(data)
            if self._nesting > _MAX_NESTING or self._room < 0:
                raise UnreadableError("its objects are nested too deeply")
            if self._nesting > _UNCHECKED_NESTING and len(data) > _DEEPEST_INSIDE:
                check_structure(data, _DEEPEST_INSIDE, _LIMITS.max_items)
            stored = self._decode(data)
            self._nesting -= 1
            return self._object(code, stored)
        except UnreadableError as error:
            self._error = self._error or error
            raise
        except Exception as error:
            self._error = self._error or UnreadableError(f"an object in it can't be rebuilt: {error!r:.200}")
            raise

    def _object(self, code: int, stored: Any) -> Any:
        if code == _SNAPSHOT:
            return _DeltaSnapshot(stored)
        if code == _ARRAY:
            raise UnreadableError("it holds a numpy array, which is no plain data: keep lists, or bytes, in the state")
        if code == _METHOD and (stored[0], stored[1], stored[3]) == _MOMENT and type(stored[2]) is str:
            return datetime.fromisoformat(stored[2])
        if code not in _OBJECTS:
            raise UnreadableError(f"it holds an object that is made in an unknown way ({code}, {stored!r:.60})")
        module, name, given = stored[:3]
        if code == _SINGLE:
            return self._build(module, name, [given], {})
        if code == _POSITIONAL:
            if (module, name) == ("langgraph.types", "Send") and len(given) == 3:
                return self._build(module, name, given[:2], {"timeout": given[2]})
            return self._build(module, name, given, {})
        return self._build(module, name, [], given, is_old_model=code == _PYDANTIC_1)

    def _build(self, module: Any, name: Any, given: Any, named: Any, *, is_old_model: bool = False) -> Any:
        """Return the object of a class, or of the standard library, made of these arguments."""
        arguments, keywords = arguments_of(given), keywords_of(named)
        standard = BUILDERS.get((module, name))
        if standard is not None:
            return standard(*arguments, **keywords)
        cls = self._class(module, name)
        construct = getattr(cls, "construct" if is_old_model else "model_construct", None)
        may_expand = expands([arguments, keywords])
        if isinstance(cls, type) and issubclass(cls, AIMessageChunk):
            may_expand = may_expand or has_unfinished_json(keywords)
        if construct is None or arguments:
            if may_expand and (module, name) in SAFE_MSGPACK_TYPES:
                raise UnreadableError(
                    f"it holds a {name!s:.60} of a whole network, a number of that size, or unfinished JSON"
                )
            return cls(*arguments, **keywords)
        if not may_expand:  # validation iterates over networks, makes numbers of Decimals, and completes JSON
            with contextlib.suppress(Exception):
                return cls(**keywords)
        return construct(**keywords)  # as LangGraph does: a model that its class would no longer accept

    def _revive(self, value: dict[str, Any]) -> Any:
        """Return an object of the old JSON: `lc` 1 is LangChain's own form, 2 is LangGraph's."""
        if value.get("lc") not in (1, 2) or value.get("type") != "constructor" or not isinstance(value.get("id"), list):
            return value
        *module, name = map(str, value["id"])
        arguments, keywords = value.get("args") or (), value.get("kwargs") or {}
        if value["lc"] == 1:
            if name in _BY_NAME and module[:1] in (["langchain"], ["langchain_core"]):
                cls = _BY_NAME[name]
                return self._build(cls.__module__, cls.__name__, [], keywords)
            raise UnreadableError(
                f"it holds an object of LangChain's, {'.'.join([*module, name])[:80]}, that is no message"
            )
        try:
            return self._build(".".join(module), name, arguments, keywords)
        except UnreadableError:
            raise
        except Exception as error:
            raise UnreadableError(f"an object in it can't be rebuilt: {error!r:.200}") from error

    def _class(self, module: Any, name: Any) -> Any:
        given = self._allowed.get((module, name))
        if given is not None:
            return given
        if (module, name) in SAFE_MSGPACK_TYPES:  # a list in LangGraph's code: nothing that data could add to
            return getattr(importlib.import_module(module), name)
        raise UnreadableError(
            f"it holds an object of the class {name!s:.60} of {module!s:.100}: if it is yours, allow it: "
            f"--allow {module!s:.100}:{name!s:.60}, or allow=[{name!s:.60}] in Python"
        )
