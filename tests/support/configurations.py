"""Hostile configurations of directories, and the results of commands that read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from holdfast.cli.main import cli

EVENT = {
    "session_id": "s",
    "hook_event_name": "PostToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "cat .env"},
}


def configure(place: Path, text: str, name: str = "holdfast.toml") -> None:
    (place / name).write_text(text)


def names_in(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def serve_hook(place: Path, *args: str) -> Result:
    """What a coding agent calls after it has used a tool in that directory."""
    event = json.dumps({**EVENT, "cwd": str(place)})
    return CliRunner().invoke(cli, ["hook", "claude-code", "--serve", *args], input=event)


def sessions_of(result: Any) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return [session["session_id"] for session in json.loads(result.stdout)["sessions"]]


def assert_refused(result: Any, *words: str) -> None:
    """For want of trust: in one line, with all these words in it."""
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert result.stderr.startswith("holdfast: the configuration of ")
    assert result.stderr.count("\n") == 1
    for word in (*words, "holdfast trust "):
        assert word in result.stderr
