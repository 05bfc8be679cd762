"""`holdfast rewind`: the points that an agent's hooks have made, by prompt and tool call, and the way back to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.confirmation import confirmed, yes_option
from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.model.checkpoint import Checkpoint
    from holdfast.sync_client import SyncClient


@click.command(short_help="Go back to a tool call of a coding agent.")
@click.argument("ref", required=False)
@click.option("--before", is_flag=True, help="Go to the point before REF: as it was before that tool call.")
@click.option(
    "--session",
    metavar="SESSION",
    help="The session. Without it: the last one of an agent with hooks in this directory.",
)
@click.option("--all", "show_all", is_flag=True, help="List also the calls that changed no file.")
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(min=0), help="How many; 0 for all.")
@click.option("--keep-user", is_flag=True, help="Leave what has changed since the last snapshot as it is.")
@click.option("--force", is_flag=True, help="Overwrite also what has changed since the last snapshot.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@yes_option
@directory_option
@store_option
@json_option
def rewind(
    ref: str | None, before: bool, session: str | None, show_all: bool, limit: int, keep_user: bool, force: bool,
    dry_run: bool, yes: bool, directory: str | None, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List the points that an agent's hooks have made, by prompt and tool call; with REF, go back to one.

    A point shows the files as they were after its tool call, or when the prompt was given. Going back is a restore of the
    files: it is shown first, and `holdfast undo` takes it back.
    """
    from holdfast.cli.json_output import print_json
    from holdfast.cli.progress import progress_bar
    from holdfast.cli.restore_output import report_fields, say_report, summary
    from holdfast.cli.store_location import open_store
    from holdfast.cli.workspace_option import chosen_workspace, open_workspace

    with open_store(store) as client:
        if ref is None:
            _list(client, session or _session(client, directory), show_all=show_all, limit=limit, as_json=as_json)
            return
        target = _target(client, ref, before=before)
        workspace = chosen_workspace(client, directory) if as_json else open_workspace(client, directory)
        keep = "user" if keep_user else None
        report = workspace.restore(target, keep=keep, force=force, dry_run=True)
        say_report(report)
        if not dry_run:
            refused = report.conflicts and not force
            if report.actions and not refused and not confirmed(f"{summary(report)}: go on?", yes=yes):
                return
            with progress_bar("restoring") as progress:
                report = workspace.restore(target, keep=keep, force=force, progress=progress)
    if as_json:
        print_json(report_fields(report))
    else:
        click.echo(summary(report))
    if report.safety_id is not None:
        click.echo("undo: holdfast undo", err=True)


def _session(client: SyncClient, directory: str | None) -> str:
    """The last session of an agent with hooks in the directory. The store may have those of other directories, too; one of which
    nobody can tell where it was is taken only if there is no other."""
    from holdfast.backends.stepping import run_inline
    from holdfast.cli.hooks.port import agents
    from holdfast.cli.workspace_option import chosen_workspace
    from holdfast.errors import CheckpointNotFoundError
    from holdfast.workspace.homes import relation_of

    workspace = chosen_workspace(client, directory)
    known = set(agents())
    unknown: str | None = None
    for one in client.sessions():
        if one.head.agent_id not in known:
            continue
        relation = run_inline(relation_of(workspace._opened, one.head.checkpoint_id))
        if relation == "same":
            return one.session_id
        if relation == "unknown":
            unknown = unknown or one.session_id
    if unknown is None:
        raise CheckpointNotFoundError(
            f"no agent with hooks has made a point in {str(workspace.path)!r:.120} yet. `holdfast hook claude-code` installs them; "
            "`--dir` names another directory, `--session` a session"
        )
    return unknown


def _points(client: SyncClient, session: str) -> list[tuple[Checkpoint, bool]]:
    """The points of a session, oldest first, and whether each has other files than the one before it."""
    listed: Sequence[Checkpoint] = list(client.timeline(session_id=session, limit=None))[::-1]
    found, last = [], None
    for one in listed:
        found.append((one, one.workspace != last))
        last = one.workspace
    return found


def _target(client: SyncClient, ref: str, *, before: bool) -> str:
    from holdfast.cli.refs import id_of_ref
    from holdfast.errors import CheckpointNotFoundError

    target = id_of_ref(client, ref)
    if not before:
        return target
    parent = client.get(target).parent_id
    if parent is None:
        raise CheckpointNotFoundError(f"there is no point before {target}: it is the first one")
    return parent


def _list(client: SyncClient, session: str, *, show_all: bool, limit: int, as_json: bool) -> None:
    from holdfast.cli.json_output import moment, print_json

    points = _points(client, session)
    shown = [(one, changed) for one, changed in points if show_all or changed or _is_prompt(one)]
    shown = shown[-limit:] if limit else shown
    if as_json:
        fields = [
            {
                "checkpoint_id": one.checkpoint_id,
                "created_at": moment(one.created_at),
                "step": one.step_name,
                "prompt": one.metadata.get("prompt"),
                "tool": one.metadata.get("tool"),
                "arguments": one.metadata.get("arguments"),
                "failed": bool(one.metadata.get("failed")),
                "changed": changed,
            }
            for one, changed in shown
        ]
        print_json({"session_id": session, "points": fields})
        return
    for one, changed in shown:
        click.echo(_line(one, changed=changed))
    if shown:
        click.echo("go back: holdfast rewind ID   (as before it: --before)", err=True)


def _is_prompt(one: Checkpoint) -> bool:
    return "prompt" in one.metadata


def _line(one: Checkpoint, *, changed: bool) -> str:
    from holdfast.cli.printable import printable

    when = one.created_at.astimezone().strftime("%H:%M:%S")
    mark = "*" if changed else " "
    if _is_prompt(one):
        return f"{one.short_id}  {when} {mark} > {printable(_first_line(one.metadata['prompt']), 90)}"
    failed = " (failed)" if one.metadata.get("failed") else ""
    said = f"{one.step_name or ''} {_said(one.metadata.get('arguments'))}".strip()
    return f"{one.short_id}  {when} {mark}   {printable(said, 86)}{failed}"


def _said(arguments: Any) -> str:
    """What a tool was called with, in a few words: the command, the file, or the first thing there is."""
    if not isinstance(arguments, dict):
        return ""
    for name in ("command", "file_path", "path", "notebook_path", "pattern", "url", "description"):
        if name in arguments:
            return _first_line(arguments[name])
    return _first_line(next(iter(arguments.values()), ""))


def _first_line(text: object) -> str:
    return str(text).strip().split("\n", 1)[0]
