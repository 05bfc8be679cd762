"""What holdfast needs to know of a coding agent that calls hooks. An agent is one more file in this folder, with these four
functions; its name is the file's."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import holdfast.cli.hooks

Where = Literal["project", "local", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A moment at which an agent has called: after a tool, or when the user has asked for something."""

    session_id: str  # the agent's own
    step: str  # a tool's name, "prompt", "start"
    directory: str | None = None  # the project's, if the agent says it
    prompt: str | None = None
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call_id: str | None = None
    failed: bool = False


class AgentHooks(Protocol):
    def settings_file(self, project: Path, home: Path, where: Where) -> Path:
        """The file of the agent's that names hooks."""

    def installed(self, settings: Mapping[str, Any], command: str) -> dict[str, Any]:
        """The settings with our hooks, whatever else they hold; the same if they are there already."""

    def removed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings without our hooks."""

    def point(self, event: Mapping[str, Any], environment: Mapping[str, str]) -> Point | None:
        """What a hook was called for, by what the agent sends; None if no snapshot is due."""


def agents() -> list[str]:
    """The agents there are hooks for."""
    found = (module.name for module in pkgutil.iter_modules(holdfast.cli.hooks.__path__))
    return sorted(name.replace("_", "-") for name in found if name != "port")


def hooks_of(agent: str) -> AgentHooks:
    return cast("AgentHooks", importlib.import_module(f"holdfast.cli.hooks.{agent.replace('-', '_')}"))
