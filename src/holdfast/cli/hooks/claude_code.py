"""Claude Code's hooks: commands that its settings name, called with JSON on stdin.

A snapshot is taken after each tool call, `Bash` included, whether it succeeded or failed, and when
a prompt is submitted or a session starts: the user's own changes in between are then a point of
their own. Nothing is printed, since a hook's output may become part of the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.cli.hooks.port import HookEvent, SettingsScope
from holdfast.errors import UsageError

MARK = "holdfast hook claude-code --serve"
EVERY_TOOL = ("PostToolUse", "PostToolUseFailure")  # these match by the tool's name
OTHERS = ("UserPromptSubmit", "SessionStart")
TIMEOUT_SECONDS = 120


def get_settings_file(project: Path, home: Path, where: SettingsScope) -> Path:
    directory = (home if where == "user" else project) / ".claude"
    return directory / ("settings.local.json" if where == "local" else "settings.json")


def add_hooks(settings: Mapping[str, Any], command: str) -> dict[str, Any]:
    cleared = remove_hooks(settings)
    hooks = dict(cleared.get("hooks", {}))
    for event in (*EVERY_TOOL, *OTHERS):
        ours: dict[str, Any] = {"hooks": [{"type": "command", "command": command, "timeout": TIMEOUT_SECONDS}]}
        if event in EVERY_TOOL:
            ours = {"matcher": "*", **ours}
        hooks[event] = [*hooks.get(event, []), ours]
    return {**cleared, "hooks": hooks}


def remove_hooks(settings: Mapping[str, Any]) -> dict[str, Any]:
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise UsageError("the settings' `hooks` are not of the form that Claude Code documents: nothing was changed")
    kept: dict[str, Any] = {}
    for event, groups in hooks.items():
        others = [other for group in groups if (other := _without_ours(group)) is not None]
        if others or not groups:
            kept[event] = others
    rest = {name: value for name, value in settings.items() if name != "hooks"}
    return {**rest, "hooks": kept} if kept else rest


def _without_ours(group: Any) -> Any:
    """Return a group of hooks without ours; None if there is nothing else in it."""
    if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
        return group
    others = [hook for hook in group["hooks"] if not _is_ours(hook)]
    if len(others) == len(group["hooks"]):
        return group
    return {**group, "hooks": others} if others else None


def _is_ours(hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and MARK.removeprefix("holdfast ") in command and "holdfast" in command


def parse_event(event: Mapping[str, Any], environment: Mapping[str, str]) -> HookEvent | None:
    session = event.get("session_id")
    if not isinstance(session, str) or not session:
        raise UsageError("what came on stdin names no session_id: is it Claude Code that called?")
    name = event.get("hook_event_name")
    # The agent may have changed its directory since: the project's is the one that it was started
    # in.
    directory = environment.get("CLAUDE_PROJECT_DIR") or _text(event, "cwd")
    if name in EVERY_TOOL:
        tool, given = _text(event, "tool_name") or "tool", event.get("tool_input")
        return HookEvent(
            session_id=session,
            step=tool,
            directory=directory,
            tool=tool,
            arguments=given if isinstance(given, dict) else {},
            call_id=_text(event, "tool_use_id"),
            failed=name == "PostToolUseFailure",
        )
    if name == "UserPromptSubmit":
        return HookEvent(session_id=session, step="prompt", directory=directory, prompt=_text(event, "prompt"))
    if name == "SessionStart":
        return HookEvent(session_id=session, step="start", directory=directory)
    return None


def _text(event: Mapping[str, Any], name: str) -> str | None:
    value = event.get(name)
    return value if isinstance(value, str) else None
