"""The tools of a target by the names that the source calls them: `tools=` of `client.resume_as`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import UsageError
from holdfast.model.conversation import ToolCallPart
from holdfast.model.provider_names import is_valid_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTool:
    """A tool of the target: its name, its parameters as JSON Schema, and its function.

    `schema_hash` is the hash that a run or an approval of the source recorded for the same tool, if
    it is known.
    """

    name: str
    schema: Mapping[str, Any] | None = None
    function: Callable[..., Any] | None = None
    schema_hash: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not is_valid_name(self.name):
            raise UsageError(
                f"the tool's name is {self.name!r:.80}: models take letters, digits, '_' and '-', at most 64 of them, "
                "beginning with a letter or '_'"
            )
        if self.schema is not None and not isinstance(self.schema, Mapping):
            raise UsageError(f"the schema of tool {self.name!r} is a {type(self.schema).__name__}: it must be a dict")
        if self.function is not None and not callable(self.function):
            raise UsageError(f"the function of tool {self.name!r} is a {type(self.function).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMap:
    """The tools of the target by their names in the source; `is_complete` if it has no others."""

    tools: Mapping[str, TargetTool] = field(default_factory=dict)
    is_complete: bool = False

    def find(self, name: str) -> TargetTool | None:
        return self.tools.get(name)

    def name_in_target(self, name: str) -> str:
        found = self.tools.get(name)
        return name if found is None else found.name

    def is_missing(self, name: str) -> bool:
        """Return whether the target is known to lack a tool."""
        return self.is_complete and name not in self.tools


def read_tools(given: Any) -> ToolMap:
    """Return what `tools=` says.

    None: the target has the tools of the source, under the same names. Else those that it has: a
    mapping from a name in the source to a name, a function or a `TargetTool`; or a list of names,
    functions and `TargetTool`s.
    """
    if given is None:
        return ToolMap()
    found: dict[str, TargetTool] = {}
    if isinstance(given, Mapping):
        for name, value in given.items():
            if not isinstance(name, str):
                raise UsageError(f"tools has the key {name!r:.60}: keys are names of the source's tools")
            found[name] = _tool(value, name)
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        for value in given:
            tool = _tool(value, None)
            found[tool.name] = tool
    else:
        raise UsageError(
            f"tools is a {type(given).__name__}: it must list the target's tools, or map the source's names to them, "
            "such as {'search': 'web_search'}"
        )
    return ToolMap(tools=found, is_complete=True)


def _tool(value: Any, name: str | None) -> TargetTool:
    if isinstance(value, TargetTool):
        return value
    if isinstance(value, str):
        return TargetTool(name=value)
    if callable(value):
        return TargetTool(name=name or str(getattr(value, "__name__", "")), function=value)
    raise UsageError(
        f"tools has a {type(value).__name__}{f' for {name!r:.60}' if name else ''}: a tool is given by its name, its "
        "function, or a TargetTool"
    )


def find_misfits(tool: TargetTool, call: ToolCallPart) -> Iterator[str]:
    """Yield in words where a recorded call does not fit the parameters of the target's tool."""
    given = call.arguments
    if given is None:
        return
    takes = _parameters(tool)
    if takes is None:
        return
    required, known, is_open = takes
    for name in required:
        if name not in given:
            yield f"{tool.name} requires {name!r}, which the recorded call lacks"
    for name in given:
        if not is_open and name not in known:
            yield f"{tool.name} has no parameter {name!r:.60}, which the recorded call has"


def _parameters(tool: TargetTool) -> tuple[set[str], set[str], bool] | None:
    """Return the required and the known parameters, and whether others are allowed; None if not known."""
    if tool.schema is not None:
        known, required = tool.schema.get("properties"), tool.schema.get("required")
        if not isinstance(known, Mapping):
            return None
        listed = {str(item) for item in required} if isinstance(required, list | tuple) else set[str]()
        return listed, set(known), bool(tool.schema.get("additionalProperties", False))
    if tool.function is None:
        return None
    try:
        found = list(inspect.signature(tool.function).parameters.values())
    except (TypeError, ValueError):
        return None
    named = [
        parameter for parameter in found if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    required = {parameter.name for parameter in named if parameter.default is parameter.empty}
    return (
        required,
        {parameter.name for parameter in named},
        any(parameter.kind is parameter.VAR_KEYWORD for parameter in found),
    )
