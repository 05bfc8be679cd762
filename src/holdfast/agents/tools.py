"""Tools: functions that a model may ask for, and what is declared about them."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from holdfast.errors import UsageError
from holdfast.runs import calling
from holdfast.runs.calling import PROVIDER_KEY

KINDS = ("read", "idempotent", "reversible", "irreversible")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that a model may ask for. `kind`, `identity`, `volatile`, `approve`, `probe`, `undo`, `on_repeat` and
    `not_done` are those of `run.effect`: what they say holds through crashes, rollbacks and forks."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    fn: Callable[..., Any]
    kind: str = "irreversible"
    identity: Sequence[str] | None = None
    volatile: Sequence[str] = ()
    approve: Any = None
    probe: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    on_repeat: str | None = None
    not_done: tuple[type[Exception], ...] = ()
    subagent: Any = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"tool {self.name!r:.60}: kind is {self.kind!r:.60}: it must be one of {', '.join(KINDS)}")
        if self.kind == "read" and calling.requires_key(self.fn):
            raise UsageError(
                f"tool {self.name!r:.60} is of the kind 'read' and needs an {PROVIDER_KEY}, which only what changes something is "
                f"given: give that parameter a default, or declare the kind 'idempotent'"
            )

    def schema(self) -> dict[str, Any]:
        """As OpenAI-compatible models want it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def schema_hash(self) -> str:
        """As `run.tool` makes it; with the parameters that were declared, if they are others than the function's own."""
        facts: dict[str, Any] = {"kind": self.kind, "identity": self.identity, "volatile": self.volatile}
        if self.parameters != schema_of(self.fn):
            facts["parameters"] = json.dumps(self.parameters, sort_keys=True, default=str)
        return calling.schema_hash(self.fn, **facts)

    def complaint(self, arguments: Mapping[str, Any]) -> str | None:
        """Why the function can't be called with these arguments; None if it can."""
        try:
            signature = inspect.signature(self.fn)
        except (TypeError, ValueError):
            return None
        keyed = {PROVIDER_KEY: ""} if PROVIDER_KEY in signature.parameters else {}
        try:
            signature.bind(**{**arguments, **keyed})
        except TypeError as error:
            return str(error)
        return None


def tool(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Makes a function a tool: `@tool(kind="read")`. Its name, its docstring and its annotations are what the model sees;
    `name`, `description` and `parameters` (a JSON schema) say so instead."""

    def made(function: Callable[..., Any]) -> Tool:
        return as_tool(function, **options)

    return made if fn is None else made(fn)


def as_tool(given: Any, **options: Any) -> Tool:
    """A tool as such, or a plain function: one that is not declared otherwise is irreversible."""
    if isinstance(given, Tool):
        return given
    if not callable(given):
        raise UsageError(f"{given!r:.80} is no tool: give a function, or what `tool` made of one")
    name = options.pop("name", None) or getattr(given, "__name__", None)
    if name is None:
        raise UsageError(f"{given!r:.80} has no name: give it one, tool(fn, name='...')")
    described = options.pop("description", None) or inspect.getdoc(given) or ""
    parameters = options.pop("parameters", None) or schema_of(given)
    unknown = [option for option in options if option not in Tool.__dataclass_fields__]
    if unknown:
        raise UsageError(f"tool {name!r:.60}: there is no option {unknown[0]!r:.60}")
    return Tool(name=name, description=described, parameters=parameters, fn=given, **options)


def by_name(given: Sequence[Any]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for one in map(as_tool, given):
        if one.name in found:
            raise UsageError(f"two tools are named {one.name!r:.60}")
        found[one.name] = one
    return found


def schema_hashes(tools: Mapping[str, Tool], path: str = "") -> dict[str, str]:
    """Of all tools, those of sub-agents included: these are known by their agent's name and their own."""
    found = {}
    for name, one in tools.items():
        found[path + name] = one.schema_hash()
        if one.subagent is not None:
            found |= schema_hashes(one.subagent.tools, f"{path}{name}/")
    return found


# -- what a function takes ---------------------------------------------------------------------------------------------

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """A JSON schema of a function's parameters, from its annotations. What they don't say may be anything."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return {"type": "object"}
    try:
        hints = get_type_hints(fn)
    except Exception:  # of whatever kind: an annotation may be any expression, and what is lost is a hint
        hints = {}
    properties, required = {}, []
    is_open = False
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            is_open = True
        elif name != PROVIDER_KEY and parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            properties[name] = _schema(hints.get(name, Any))
            if parameter.default is inspect.Parameter.empty:
                required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": is_open}


def _schema(hint: Any) -> dict[str, Any]:
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one) for one in inner]}
    if hint is list or origin in (list, tuple, set, Sequence):
        return {"type": "array", "items": _schema(inner[0]) if inner else {}}
    if hint is dict or origin in (dict, Mapping):
        return {"type": "object"}
    return {}
