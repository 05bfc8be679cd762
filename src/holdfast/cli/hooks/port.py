"""The interface of a coding agent that calls hooks.

An agent is one more file in this folder, with these four functions; its name is the file's.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import holdfast.cli.hooks

SettingsScope = Literal["project", "local", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """A moment at which an agent has called: after a tool, or at a prompt of the user."""

    session_id: str  # the agent's own
    step: str  # a tool's name, "prompt", "start"
    directory: str | None = None  # the project's, if the agent says it
    prompt: str | None = None
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call_id: str | None = None
    failed: bool = False


class AgentHooks(Protocol):
    def get_settings_file(self, project: Path, home: Path, where: SettingsScope) -> Path:
        """Return the file of the agent's that names hooks."""

    def add_hooks(self, settings: Mapping[str, Any], command: str) -> dict[str, Any]:
        """Return the settings with our hooks, whatever else they hold; the same if they are there already."""

    def remove_hooks(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings without our hooks."""

    def parse_event(self, event: Mapping[str, Any], environment: Mapping[str, str]) -> HookEvent | None:
        """Return the point of an agent's event; None if no snapshot is due."""


def list_agents() -> list[str]:
    """Return the agents there are hooks for."""
    found = (module.name for module in pkgutil.iter_modules(holdfast.cli.hooks.__path__))
    return sorted(name.replace("_", "-") for name in found if name != "port")


def load_hooks(agent: str) -> AgentHooks:
    return cast("AgentHooks", importlib.import_module(f"holdfast.cli.hooks.{agent.replace('-', '_')}"))
