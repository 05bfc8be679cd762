"""Errors for values that can't be stored: the reason and the remedy."""

from __future__ import annotations

import dataclasses
import io
import types
from enum import Enum
from typing import Any

from holdfast.codec.redacted import full_name


class Refusal(Exception):  # noqa: N818 - a signal inside the codec, always turned into an UnsupportedValueError
    """A value can't be stored exactly. The caller that knows its path adds it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


# By the type's own name, so that nothing has to be imported to know it.
_REMEDY_BY_NAME = {
    "collections.ChainMap": "Store dict(x)",
    "mappingproxy": "Store dict(x)",
    "array.array": "Store x.tolist() or x.tobytes()",
    "range": "Store list(x), or its start, stop and step",
    "slice": "Store its start, stop and step",
    "dict_keys": "Store list(x)",
    "dict_values": "Store list(x)",
    "dict_items": "Store list(x)",
    "_thread.lock": "Leave it out of the state and create it again after a restore",
    "_thread.RLock": "Leave it out of the state and create it again after a restore",
    "ormsgpack.Ext": "Store the value it was made from",
    "ormsgpack.Fragment": "Store the value it was made from",
    "datetime.timezone": "Store its offset: x.utcoffset(None)",
    "zoneinfo.ZoneInfo": "Store its key: x.key",
}
_LIVE = "It lives only in this process: leave it out of the state and create it again after a restore"


def refusal(value: object) -> Refusal:
    """Return the refusal of `value`, whose type is neither supported nor registered."""
    cls = type(value)
    name = full_name(cls)
    problem = f"{_article(name)} can't be stored exactly"
    register = f"Register it: holdfast.register({cls.__name__})"
    if name in _REMEDY_BY_NAME:
        return Refusal(problem, _REMEDY_BY_NAME[name])
    if cls.__module__ == "numpy.dtypes":
        return Refusal(problem, "Store x.str")
    if cls.__module__.partition(".")[0] == "numpy":
        return Refusal(problem, "Store x.item()" if getattr(value, "shape", None) == () else "Store x.tolist()")
    if hasattr(cls, "get_secret_value"):
        return Refusal(
            f"{_article(name)} is a secret, and is never stored in clear",
            "Leave it out of the state: store what it is called where it comes from, and read it there after a restore",
        )
    if name == "pandas.DataFrame" or (cls.__module__.startswith("pandas.") and cls.__name__ == "DataFrame"):
        return Refusal(problem, f"{register[:-1]}, encode=..., decode=...): the documentation of types has a recipe")
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return Refusal(problem, "Functions are code, not data: store a name and look the function up by it")
    if isinstance(value, (types.GeneratorType, types.AsyncGeneratorType)):
        return Refusal(problem, "Store what it yields: list(x)")
    if isinstance(value, types.CoroutineType):
        return Refusal(problem, "Store its result: await it first")
    if isinstance(value, type):
        return Refusal(problem, "Classes are code, not data: store a name and look the class up by it")
    if isinstance(value, BaseException):
        return Refusal(problem, "Store its text: repr(x)")
    if isinstance(value, types.ModuleType):
        return Refusal(problem, "Leave it out of the state and import it where it is needed")
    if isinstance(value, io.IOBase):
        return Refusal(problem, "Store its path or its contents; open files can't be restored")
    if isinstance(value, Enum) or has_fields(cls):
        instead = ", or store x.model_dump()" if hasattr(cls, "__pydantic_core_schema__") else ""
        return Refusal(f"{problem}: its class is not registered", register + instead)
    for base in (str, bytes, bytearray, bool, int, float, complex, list, tuple, dict, set, frozenset):
        if isinstance(value, base):
            return Refusal(
                f"{problem}: it is a subclass of {base.__name__}, whose type would be lost",
                f"Store {base.__name__}(x), or register it: holdfast.register({cls.__name__}, encode=..., decode=...)",
            )
    if hasattr(cls, "__next__") or hasattr(cls, "__await__"):
        return Refusal(problem, _LIVE)
    return Refusal(
        problem,
        f"Store plain data instead, or register it: holdfast.register({cls.__name__}, encode=..., decode=...)",
    )


def has_fields(cls: type[Any]) -> bool:
    """Return whether its objects are stored by their fields: they need nothing but `register`."""
    return (
        dataclasses.is_dataclass(cls)
        or hasattr(cls, "__attrs_attrs__")
        or hasattr(cls, "__pydantic_core_schema__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
