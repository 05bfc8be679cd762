"""Tools that work in a directory: which one it is, and their limits. `coding_tools.py` has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.agent_loop.tool import Tool
from holdfast.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimits:
    """How long a command may run, how much text a call may give, and how large a file may be."""

    seconds: float = 120.0
    characters: int = 30_000
    file_bytes: int = 10_000_000

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value > 0:
                raise UsageError(f"{name} is {value!r:.60}: it must be a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryTool(Tool):
    """A tool that works in one directory: that of `within`, the agent's workspace, or the current one."""

    make: Callable[[str, ToolLimits], Callable[..., Any]]
    directory: str | None = None
    limits: ToolLimits = ToolLimits()

    def within(self, directory: str | os.PathLike[str], **limits: Any) -> DirectoryTool:
        """Return the tool for another directory, with other `ToolLimits`: `bash.within("repo", seconds=600)`."""
        known = ToolLimits.__dataclass_fields__
        if unknown := [name for name in limits if name not in known]:
            raise UsageError(f"{self.name} has no limit {unknown[0]!r:.60}: there are {', '.join(known)}")
        narrowed = replace(self.limits, **limits)
        path = os.path.abspath(os.fspath(directory))  # noqa: PTH100 - what it means now, wherever the program goes
        return replace(self, directory=path, limits=narrowed, fn=self.make(path, narrowed))


def bound_to(tools: Mapping[str, Tool], directory: str | os.PathLike[str]) -> dict[str, Tool]:
    """Return the tools, those of sub-agents included; each without a directory gets this one."""
    return {name: _bind_tool(tool, directory) for name, tool in tools.items()}


def _bind_tool(tool: Tool, directory: str | os.PathLike[str]) -> Tool:
    if isinstance(tool, DirectoryTool) and tool.directory is None:
        return tool.within(directory)
    if tool.subagent is not None:
        return replace(tool, subagent=replace(tool.subagent, tools=bound_to(tool.subagent.tools, directory)))
    return tool
