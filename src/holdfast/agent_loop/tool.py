"""Tools: functions that a model may call, and their declarations."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from holdfast.errors import UsageError
from holdfast.runs import call_binding, effect_options
from holdfast.runs.call_binding import PROVIDER_KEY
from holdfast.runs.effect_options import OF_EFFECTS

KINDS = ("read", "workspace", "idempotent", "reversible", "irreversible")
STEPS = ("read", "workspace")
"""Kinds without an effect on the outside world: a call is a step, repeated after a crash or a rollback."""
OF_DECLARED = ("identity", "volatile", "probe", "undo", "on_repeat")
"""Options that say which calls are the same effect, or what becomes of one: who gives them has declared one."""

IN_LEDGER = ("probe", "undo", "on_repeat")
"""Options that are about an entry of the ledger, which a step has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that a model may call.

    `kind`, `identity`, `volatile`, `approve`, `probe`, `undo`, `on_repeat` and `not_done` are those
    of `run.effect`: they hold through crashes, rollbacks and forks.

    A tool of the kind "workspace" changes files of the agent's workspace and nothing else, and may
    be repeated. Without a kind, each call of the model is an effect of its own: the same call is
    carried out at most once, and a new call is a new decision. `identity`, `volatile`, `probe`,
    `undo` and `on_repeat` imply the kind "irreversible".
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    fn: Callable[..., Any]
    kind: str | None = None
    identity: Sequence[str] | None = None
    volatile: Sequence[str] = ()
    approve: Any = None
    probe: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    on_repeat: str | None = None
    not_done: tuple[type[Exception], ...] = ()
    subagent: Any = None

    def __post_init__(self) -> None:
        if self.kind is None and any(getattr(self, option) not in (None, ()) for option in OF_DECLARED):
            object.__setattr__(self, "kind", "irreversible")
        if self.kind is not None and self.kind not in KINDS:
            raise UsageError(f"tool {self.name!r:.60}: kind is {self.kind!r:.60}: it must be one of {', '.join(KINDS)}")
        if self.is_step and self.approve is not None:
            raise UsageError(
                f"tool {self.name!r:.60} is of the kind {self.kind!r}, whose calls need no approval: "
                "leave out approve=, or give "
                "another kind"
            )
        if self.is_step and call_binding.requires_key(self.fn):
            raise UsageError(
                f"tool {self.name!r:.60} is of the kind {self.kind!r} and needs an {PROVIDER_KEY}, "
                "which only what changes something is "
                f"given: give that parameter a default, or declare the kind 'idempotent'"
            )
        self._refuse_wrong_options()

    def _refuse_wrong_options(self) -> None:
        subject, given = f"tool {self.name!r:.60}", {option: getattr(self, option) for option in OF_EFFECTS}
        effect_options.refuse_wrong_values(subject, given)
        if self.is_step:
            effect_options.refuse_options_of_effects(
                subject, f"the kind {self.kind!r}, whose calls may be repeated", given, IN_LEDGER
            )
        else:
            effect_options.refuse_contradictions(subject, self.kind, None, given)

    @property
    def is_declared(self) -> bool:
        """Whether its kind is known. Equal calls of a tool that is not declared are different effects."""
        return self.kind is not None

    @property
    def is_step(self) -> bool:
        """Whether its calls are steps, and no effects."""
        return self.kind in STEPS

    @property
    def effect_kind(self) -> str:
        """Return the kind of its effects in the ledger: possibly irreversible counts as irreversible."""
        return "read" if self.is_step else self.kind or "irreversible"

    def schema(self) -> dict[str, Any]:
        """Return the schema in the form of OpenAI-compatible models."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def schema_hash(self) -> str:
        """Return the hash as in `run.tool`; it covers declared parameters that differ from the function's own."""
        facts: dict[str, Any] = {"kind": self.effect_kind, "identity": self.identity, "volatile": self.volatile}
        if self.parameters != schema_of(self.fn):
            facts["parameters"] = json.dumps(self.parameters, sort_keys=True, default=str)
        return call_binding.schema_hash(self.fn, **facts)

    def find_argument_error(self, arguments: Mapping[str, Any]) -> str | None:
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
        properties = self.parameters.get("properties")
        for name, schema in properties.items() if isinstance(properties, Mapping) else ():
            if name in arguments and not _fits(arguments[name], schema):
                return f"{name} is {json.dumps(arguments[name], default=str):.60}: it must be {json.dumps(schema):.200}"
        return None


def tool(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function a tool: `@tool(kind="read")`.

    The model sees its name, its docstring and its annotations; `name`, `description` and
    `parameters` (a JSON schema) replace them.
    """

    def made(function: Callable[..., Any]) -> Tool:
        return as_tool(function, **options)

    return made if fn is None else made(fn)


def as_tool(given: Any, **options: Any) -> Tool:
    """Return a tool as it is, or make one of a plain function, without declarations."""
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
    for item in map(as_tool, given):
        if item.name in found:
            raise UsageError(f"two tools are named {item.name!r:.60}")
        found[item.name] = item
    return found


def schema_hashes(tools: Mapping[str, Tool], path: str = "") -> dict[str, str]:
    """Return the hashes of all tools; a sub-agent's tool is named by its agent and its own name."""
    found = {}
    for name, value in tools.items():
        found[path + name] = value.schema_hash()
        if value.subagent is not None:
            found |= schema_hashes(value.subagent.tools, f"{path}{name}/")
    return found


# -- what a function takes ---------------------------------------------------------------------------------------------

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return a JSON schema of a function's annotated parameters; unannotated ones take anything."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return {"type": "object"}
    try:
        hints = get_type_hints(fn)
    except Exception:  # of any kind: an annotation may be any expression, and only a hint is lost
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


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list, tuple),
    "object": (Mapping,),
}


def _fits(value: Any, schema: Any) -> bool:
    """Return whether a value has the type that a schema names; the function checks the rest of the schema."""
    if not isinstance(schema, Mapping):
        return True
    if isinstance(schema.get("anyOf"), list):
        return any(_fits(value, item) for item in schema["anyOf"])
    named = schema.get("type")
    if not isinstance(named, str) or named not in _TYPES:
        return True
    if isinstance(value, bool):
        return named == "boolean"
    return isinstance(value, _TYPES[named]) or (named == "integer" and isinstance(value, float) and value.is_integer())


def _schema(hint: Any) -> dict[str, Any]:
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(item) for item in inner]}
    if hint is list or origin in (list, tuple, set, Sequence):
        return {"type": "array", "items": _schema(inner[0]) if inner else {}}
    if hint is dict or origin in (dict, Mapping):
        return {"type": "object"}
    return {}
