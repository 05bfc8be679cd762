"""`holdfast hook`: makes every tool call of a coding agent a point of return, by the agent's own hooks."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.confirmation import confirmed, yes_option
from holdfast.cli.hooks.port import agents
from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.cli.hooks.port import Point, Where

LONGEST = 4000  # of what is kept of a tool's arguments and of a prompt, each


@click.command(short_help="Make every tool call of a coding agent a point of return.")
@click.argument("agent", type=click.Choice(agents()))
@click.option("--local", "where", flag_value="local", help="In the project's settings that are not shared.")
@click.option("--user", "where", flag_value="user", help="In your own settings, for all projects.")
@click.option("--project", "where", flag_value="project", default=True, help="In the project's settings (the default).")
@click.option("--remove", is_flag=True, help="Take the hooks out again.")
@click.option("--serve", is_flag=True, help="What the agent calls: reads an event from stdin, takes a snapshot.")
@yes_option
@store_option
@json_option
def hook(agent: str, where: Where, remove: bool, serve: bool, yes: bool, store: str | None, as_json: bool) -> None:
    """Make every tool call of a coding agent a point of return, shell commands included.

    Shows what it will change in the agent's settings, and changes it. From then on a snapshot is taken after each tool
    call and at each prompt; `holdfast rewind` lists them and goes back.
    """
    if serve:
        _serve(agent, store, as_json=as_json)
        return
    from holdfast.cli.hooks.port import hooks_of

    hooks = hooks_of(agent)
    path = hooks.settings_file(Path.cwd(), Path.home(), where)
    before = _settings(path)
    after = hooks.removed(before) if remove else hooks.installed(before, _command(agent, store))
    if before == after:
        word = "are not there" if remove else "are there already"
        _say(as_json, path, f"the hooks {word}: nothing to do", changed=False)
        return
    _show_change(path, before, after)
    if not confirmed(f"change {path}?", yes=yes):
        return
    _write(path, after)
    _say(as_json, path, "the hooks were removed" if remove else "the hooks are installed", changed=True)
    flag = "" if where == "project" else f" --{where}"
    again = "" if remove else " --remove"
    click.echo(f"undo: holdfast hook {agent}{flag}{again}", err=True)


def _command(agent: str, store: str | None) -> str:
    """How the agent calls us: by name if the name is found, else by the Python that we run in."""
    called = ["holdfast"] if shutil.which("holdfast") else [sys.executable, "-m", "holdfast"]
    named = ["--store", store] if store is not None else []
    return shlex.join([*called, "hook", agent, "--serve", *named])


def _settings(path: Path) -> dict[str, Any]:
    from holdfast.errors import HoldfastError, UsageError

    try:
        settings = json.loads(path.read_text("utf-8") or "{}")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise HoldfastError(
            f"{path} can't be read ({error.strerror}): nothing was changed. See to it that it is a file that you may read, or choose "
            "other settings (--local, --user)"
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON ({error}): nothing was changed. Mend it first") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{path} holds no settings: nothing was changed")
    return settings


def _show_change(path: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    import difflib

    from holdfast.cli.printable import printable

    was, becomes = (json.dumps(one, indent=2).splitlines() if one else [] for one in (before, after))
    for line in difflib.unified_diff(was, becomes, str(path), str(path), lineterm="", n=2):
        click.echo(printable(line), err=True)


def _write(path: Path, settings: Mapping[str, Any]) -> None:
    """Whole or not at all; a link is followed, since people keep their settings elsewhere."""
    from holdfast.errors import HoldfastError

    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o644
        temporary.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8")
        temporary.chmod(mode)
        temporary.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise HoldfastError(
            f"{path} can't be written ({error.strerror}): nothing was changed. See to it that {target.parent} is a directory that you may "
            "write to, or choose other settings (--local, --user)"
        ) from error


def _say(as_json: bool, path: Path, words: str, *, changed: bool) -> None:
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"settings": str(path), "changed": changed})
    else:
        click.echo(f"{path}: {words}")


# -- what the agent calls --------------------------------------------------------------------------------------------


def _serve(agent: str, store: str | None, *, as_json: bool) -> None:
    """Takes a snapshot for one event. Whatever goes wrong, the agent goes on: the exit code 1 is an error that it shows,
    and 2, by which it would be blocked, is never used."""
    from holdfast.cli.hooks.port import hooks_of

    try:
        event = json.loads(sys.stdin.read())
        point = hooks_of(agent).point(event if isinstance(event, dict) else {}, os.environ)
        made = None if point is None else _take(agent, point, store)
    except Exception as error:
        from holdfast.cli.printable import printable_lines

        click.echo(f"holdfast: no snapshot was taken: {printable_lines(str(error))}", err=True)
        raise SystemExit(1) from None
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"checkpoint_id": made})


def _take(agent: str, point: Point, store: str | None) -> str:
    from holdfast.cli.printable import printable_lines
    from holdfast.cli.store_location import DIRECTORY, open_or_make_store
    from holdfast.cli.workspace_option import refuse_what_is_no_workspace, workspace_in

    project = refuse_what_is_no_workspace(point.directory or Path.cwd())
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
            workspace=workspace_in(client, project),
            **metadata,
        )
        snapshot = client.snapshot_of(made)
        if snapshot is not None and snapshot.not_taken is not None:
            click.echo(f"holdfast: {printable_lines(snapshot.not_taken.reason)}", err=True)
            raise SystemExit(1)
        return made


def _short(value: Any) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _keep_out_of_git(directory: Path) -> None:
    """The store is nobody's source: the project's git is told so, within the store's own directory."""
    ignore = directory / ".gitignore"
    if directory.is_dir() and not ignore.exists():
        ignore.write_text("*\n", "utf-8")
