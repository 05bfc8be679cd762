"""`holdfast hook`: a snapshot for every tool call of a coding agent, through the agent's own hooks."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from holdfast.cli.atomic_file import replace_file
from holdfast.cli.directory_config import UntrustedError
from holdfast.cli.hooks.port import HookEvent, SettingsScope, list_agents, load_hooks
from holdfast.cli.option_words import rephrase_error
from holdfast.cli.options import common_options, confirm, yes_option
from holdfast.cli.options_workspace import check_workspace_root, make_workspace
from holdfast.cli.output.diff import print_text_change
from holdfast.cli.output.error import print_words
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import print_result
from holdfast.cli.project_file import refuse_odd_file
from holdfast.cli.store_location import DIRECTORY, open_or_make_store
from holdfast.cli.terminal.sanitize import escape, escape_lines
from holdfast.errors import HoldfastError, UsageError

LONGEST = 4000  # characters stored of a tool's arguments and of a prompt, each


@click.command(short_help="Take a snapshot after every tool call of a coding agent.")
@click.argument("agent", type=click.Choice(list_agents()))
@click.option("--local", "where", flag_value="local", help="Change the project's settings that are not shared.")
@click.option("--user", "where", flag_value="user", help="Change your user settings, for all projects.")
@click.option("--project", "where", flag_value="project", default=True, help="Change the project's settings (default).")
@click.option("--remove", is_flag=True, help="Remove the hooks.")
@click.option("--serve", is_flag=True, help="Called by the agent: read an event from stdin, take a snapshot.")
@yes_option
@common_options
def hook(
    agent: str, where: SettingsScope, remove: bool, serve: bool, yes: bool, store: str | None, as_json: bool
) -> None:
    """Take a snapshot after every tool call and at each prompt of a coding agent.

    Shell commands are tool calls, too. Shows the change to the agent's settings, then makes it. `holdfast rewind`
    lists the snapshots and restores one.
    """
    if serve:
        _serve(agent, store, as_json=as_json)
        return
    hooks = load_hooks(agent)
    path = hooks.get_settings_file(Path.cwd(), Path.home(), where)
    if where != "user":  # the user's own settings may be a link to anywhere
        refuse_odd_file(path, Path.cwd(), remedy=", or choose your own settings (--user)")
    before = _settings(path)
    after = hooks.remove_hooks(before) if remove else hooks.add_hooks(before, _command(agent, store))
    if before == after:
        word = "are not there" if remove else "are there already"
        _print_settings(as_json, path, f"the hooks {word}: nothing to do", changed=False)
        return
    _show_change(path, before, after)
    if not confirm(f"change {path}?", yes=yes):
        return
    _write(path, after)
    _print_settings(as_json, path, "the hooks were removed" if remove else "the hooks are installed", changed=True)
    flag = "" if where == "project" else f" --{where}"
    again = "" if remove else " --remove"
    click.echo(f"undo: holdfast hook {agent}{flag}{again}", err=True)


def _command(agent: str, store: str | None) -> str:
    """Return the command by which the agent calls us: by name if it is found, else by this Python.

    It has -P, because the agent calls from the project's directory: no module there is imported.
    """
    called = ["holdfast"] if shutil.which("holdfast") else [sys.executable, "-P", "-m", "holdfast"]
    named = ["--store", store] if store is not None else []
    return shlex.join([*called, "hook", agent, "--serve", *named])


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text("utf-8") or "{}")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise HoldfastError(
            f"{path} can't be read ({error.strerror}): nothing was changed. Make it a file that you may read, "
            "or choose other settings (--local, --user)"
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON ({error}): nothing was changed. Mend it first") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{path} holds no settings: nothing was changed")
    return settings


def _show_change(path: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    was = json.dumps(before, indent=2) if before else ""
    print_text_change(path, was, json.dumps(after, indent=2))  # settings without hooks stay a file: {}


def _write(path: Path, settings: Mapping[str, Any]) -> None:
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise HoldfastError(
            f"{path} can't be written ({error.strerror}): nothing was changed. Make {target.parent} a directory "
            "that you may write to, or choose other settings (--local, --user)"
        ) from error


def _print_settings(as_json: bool, path: Path, words: str, *, changed: bool) -> None:
    print_result({"settings": str(path), "changed": changed}, f"{path}: {words}", as_json=as_json)


# -- what the agent calls --------------------------------------------------------------------------------------------


def _serve(agent: str, store: str | None, *, as_json: bool) -> None:
    """Take a snapshot for one event; no failure stops the agent.

    The exit code 1 is an error that the agent shows; 2, which would block it, is never used. A
    project that is not trusted is no error: one line says so.
    """
    try:
        event = json.loads(sys.stdin.read())
        point = load_hooks(agent).parse_event(event if isinstance(event, dict) else {}, os.environ)
        made = None if point is None else _take(agent, point, store)
    except UntrustedError as error:
        click.echo(f"holdfast: no snapshot was taken: {escape(str(error))}", err=True)
        made = None
    except Exception as error:
        message = f"no snapshot was taken: {rephrase_error(error, click.get_current_context())}"
        print_words(message, exit_code=1, as_json=as_json)
        raise SystemExit(1) from None
    if as_json:
        print_json({"checkpoint_id": made})


def _take(agent: str, point: HookEvent, store: str | None) -> str:
    project = check_workspace_root(point.directory or Path.cwd())
    os.chdir(project)  # from there the store is found, or made
    with open_or_make_store(store) as client:
        _keep_out_of_git(project / DIRECTORY)
        metadata: dict[str, Any] = {
            name: value
            for name, value in {
                "hook": agent,
                "tool": point.tool,
                "arguments": {key: _short(value) for key, value in point.arguments.items()} or None,
                "call_id": point.call_id,
                "prompt": None if point.prompt is None else _short(point.prompt),
                "failed": point.failed or None,
            }.items()
            if value is not None
        }
        made = client.save(
            agent,
            session_id=f"{agent} {point.session_id}",
            step_name=point.step,
            workspace=make_workspace(client, project),
            **metadata,
        )
        snapshot = client.snapshot_of(made)
        if snapshot is not None and snapshot.not_taken is not None:
            click.echo(f"holdfast: {escape_lines(snapshot.not_taken.reason)}", err=True)
            raise SystemExit(1)
        return made


def _short(value: Any) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _keep_out_of_git(directory: Path) -> None:
    """Keep the store out of the project's git, by an ignore file in the store's own directory."""
    from holdfast.backends.local_path import keep_out_of_git

    if directory.is_dir() and not directory.is_symlink():
        keep_out_of_git(directory)
