"""Reading the values that LangGraph's own savers have stored, without executing anything that they name.

They are MessagePack (before 2025: JSON) in which an object is a module, a name, and what to call it with. The official serializer
imports the module and calls it, by default whatever it is. Here a name is looked up in a list: LangGraph's own list of safe
types, and the classes that the caller gave. For anything else the value can't be read, and the reason says what to give.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.adapters.langgraph.messages import MESSAGE_CLASSES

_SINGLE, _POSITIONAL, _KEYWORDS, _METHOD, _PYDANTIC_1, _PYDANTIC_2, _ARRAY, _SNAPSHOT = range(8)
_OBJECTS = (_SINGLE, _POSITIONAL, _KEYWORDS, _PYDANTIC_1, _PYDANTIC_2)
_MOMENT = ("datetime", "datetime", "fromisoformat")  # the one method that is ever called
_BY_NAME = {cls.__name__: cls for cls in MESSAGE_CLASSES}


class UnreadableError(ValueError):
    """Says why a stored value can't be read."""


class Reader:
    """`allow` are classes of the program that wrote the values."""

    def __init__(self, allow: Iterable[type[Any]] = ()) -> None:
        self._allowed = {(cls.__module__, cls.__name__): cls for cls in allow}
        self._error: Exception | None = None

    def read(self, kind: str | None, data: bytes | None) -> Any:
        """The value of a typed column. Raises UnreadableError, and nothing else."""
        raw = b"" if data is None else bytes(data)
        if kind == "null":
            return None
        if kind == "bytes":
            return raw
        if kind == "bytearray":
            return bytearray(raw)
        if kind == "msgpack":
            return self._unpacked(raw)
        if kind == "json":
            return self.read_json(raw)
        if kind == "pickle":
            raise UnreadableError("it is a pickle, and holdfast executes nothing that was stored")
        raise UnreadableError(f"it is stored as {kind!r:.40}, by a serializer of its own, perhaps encrypted")

    def read_json(self, data: bytes | str) -> Any:
        try:
            return json.loads(data, object_hook=self._revived)
        except UnreadableError:
            raise
        except (ValueError, RecursionError) as error:
            raise UnreadableError(f"its JSON can't be read: {error}") from error

    def _unpacked(self, data: bytes) -> Any:
        self._error = None
        try:
            return ormsgpack.unpackb(data, ext_hook=self._hook, option=ormsgpack.OPT_NON_STR_KEYS)
        except (ValueError, RecursionError) as error:  # ormsgpack's own words for what the hook raised
            raise self._error or UnreadableError(f"its MessagePack can't be read: {error}") from error

    def _hook(self, code: int, data: bytes) -> Any:
        try:
            return self._object(code, ormsgpack.unpackb(data, ext_hook=self._hook, option=ormsgpack.OPT_NON_STR_KEYS))
        except UnreadableError as error:
            self._error = self._error or error
            raise
        except Exception as error:
            self._error = self._error or UnreadableError(f"an object in it can't be rebuilt: {error!r:.200}")
            raise

    def _object(self, code: int, stored: Any) -> Any:
        if code == _SNAPSHOT:
            return _DeltaSnapshot(stored)
        if code == _METHOD and (stored[0], stored[1], stored[3]) == _MOMENT:
            return datetime.fromisoformat(stored[2])
        if code == _ARRAY:
            raise UnreadableError("it holds a numpy array, which is no plain data: keep lists, or bytes, in the state")
        if code not in _OBJECTS:
            raise UnreadableError(f"it holds an object that is made in an unknown way ({code}, {stored!r:.60})")
        module, name, given = stored[:3]
        cls = self._class(module, name)
        if code == _SINGLE:
            return cls(given)
        if code == _POSITIONAL:
            if (module, name) == ("langgraph.types", "Send") and len(given) == 3:
                return cls(given[0], given[1], timeout=given[2])
            return cls(*given)
        if code == _KEYWORDS:
            return cls(**given)
        try:
            return cls(**given)
        except Exception:  # as LangGraph does: a model that its class would no longer accept
            return cls.model_construct(**given) if code == _PYDANTIC_2 else cls.construct(**given)

    def _revived(self, value: dict[str, Any]) -> Any:
        """An object of the old JSON: `lc` 1 is LangChain's own form, 2 is LangGraph's."""
        if value.get("lc") not in {1, 2} or value.get("type") != "constructor" or not isinstance(value.get("id"), list):
            return value
        *module, name = map(str, value["id"])
        arguments, keywords = value.get("args") or (), value.get("kwargs") or {}
        if value["lc"] == 1:
            if name in _BY_NAME and module[:1] in (["langchain"], ["langchain_core"]):
                return _BY_NAME[name](**keywords)
            raise UnreadableError(
                f"it holds an object of LangChain's, {'.'.join([*module, name])[:80]}, that is no message"
            )
        try:
            return self._class(".".join(module), name)(*arguments, **keywords)
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
