"""`holdfast rewind`: go back to a point that an agent's hooks recorded, by prompt and tool call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.hooks.port import list_agents
from holdfast.cli.options import common_options, confirm, limit_option, overwrite_options, plan_option, yes_option
from holdfast.cli.options_workspace import directory_option, find_workspace, open_workspace
from holdfast.cli.output.json import print_json
from holdfast.cli.output.operation import print_how_to_undo
from holdfast.cli.output.restore import format_summary, print_dry_run, print_report
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.progress import progress_bar
from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import CheckpointNotFoundError
from holdfast.json_form.operation import report_fields
from holdfast.json_form.values import format_time
from holdfast.model.checkpoint import Checkpoint

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient


@click.command(short_help="Restore files to a tool call of a coding agent.")
@click.argument("ref", required=False)
@click.option("--before", is_flag=True, help="Restore the snapshot before REF.")
@click.option(
    "--session", metavar="SESSION", help="Session.  [default: the last one of an agent's hooks in this directory]"
)
@click.option("--all", "show_all", is_flag=True, help="Include calls that changed no file.")
@limit_option
@overwrite_options(" the last snapshot")
@plan_option
@yes_option
@directory_option
@common_options
def rewind(
    ref: str | None, before: bool, session: str | None, show_all: bool, limit: int, keep_user: bool, force: bool,
    dry_run: bool, yes: bool, directory: str | None, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List the snapshots of a coding agent's hooks, by prompt and tool call; with REF, restore one.

    A snapshot has the files after its tool call, or at its prompt. Restoring shows the plan first, and `holdfast
    undo` reverts it.
    """
    with open_store(store) as client:
        if ref is None:
            _list(client, session or _session(client, directory), show_all=show_all, limit=limit, as_json=as_json)
            return
        target = _target(client, ref, before=before)
        workspace = find_workspace(client, directory) if as_json else open_workspace(client, directory)
        keep = "user" if keep_user else None
        report = workspace.restore(target, keep=keep, force=force, dry_run=True)
        print_report(report)
        if not dry_run:
            refused = report.conflicts and not force
            if report.actions and not refused and not confirm(f"{format_summary(report)}: continue?", yes=yes):
                return
            with progress_bar("restoring") as progress:
                report = workspace.restore(target, keep=keep, force=force, progress=progress)
        if as_json:
            print_json(report_fields(report))
        else:
            click.echo(format_summary(report))
        if dry_run:
            print_dry_run()
        elif report.safety_id is not None:
            print_how_to_undo(client, "restore")


def _session(client: SyncClient, directory: str | None) -> str:
    """Return the last session of an agent with hooks in the directory.

    The store may have sessions of other directories, too. A session whose directory is unknown is
    taken only if there is no other.
    """
    from holdfast.backends.bridge.step import run_inline
    from holdfast.workspace.origin import relation_of

    workspace = find_workspace(client, directory)
    known = set(list_agents())
    unknown: str | None = None
    for session in client.sessions():
        if session.head.agent_id not in known:
            continue
        relation = run_inline(relation_of(workspace._opened, session.head.checkpoint_id))
        if relation == "same":
            return session.session_id
        if relation == "unknown":
            unknown = unknown or session.session_id
    if unknown is None:
        raise CheckpointNotFoundError(
            f"the hooks of an agent have taken no snapshot in {str(workspace.path)!r:.120} yet. `holdfast hook "
            "claude-code` installs them; "
            "`--dir` names another directory, `--session` a session"
        )
    return unknown


def _points(client: SyncClient, session: str) -> list[tuple[Checkpoint, bool]]:
    """Return the points of a session, oldest first, and whether the files of each differ from the last."""
    listed: Sequence[Checkpoint] = list(client.timeline(session_id=session, limit=None))[::-1]
    found, last = [], None
    for checkpoint in listed:
        found.append((checkpoint, checkpoint.workspace != last))
        last = checkpoint.workspace
    return found


def _target(client: SyncClient, ref: str, *, before: bool) -> str:
    target = client.resolve(ref)
    if not before:
        return target
    parent = client.get(target).parent_id
    if parent is None:
        raise CheckpointNotFoundError(f"there is no point before {target}: it is the first one")
    return parent


def _list(client: SyncClient, session: str, *, show_all: bool, limit: int, as_json: bool) -> None:
    points = _points(client, session)
    shown = [(checkpoint, changed) for checkpoint, changed in points if show_all or changed or _is_prompt(checkpoint)]
    shown = shown[-limit:] if limit else shown
    if as_json:
        fields = [
            {
                "checkpoint_id": checkpoint.checkpoint_id,
                "created_at": format_time(checkpoint.created_at),
                "step": checkpoint.step_name,
                "prompt": checkpoint.metadata.get("prompt"),
                "tool": checkpoint.metadata.get("tool"),
                "arguments": checkpoint.metadata.get("arguments"),
                "failed": bool(checkpoint.metadata.get("failed")),
                "changed": changed,
            }
            for checkpoint, changed in shown
        ]
        print_json({"session_id": session, "points": fields})
        return
    for checkpoint, changed in shown:
        click.echo(_line(checkpoint, changed=changed))
    if shown:
        click.echo("go back: holdfast rewind ID   (as before it: --before)", err=True)


def _is_prompt(checkpoint: Checkpoint) -> bool:
    return "prompt" in checkpoint.metadata


def _line(checkpoint: Checkpoint, *, changed: bool) -> str:
    when = checkpoint.created_at.astimezone().strftime("%H:%M:%S")
    mark = "*" if changed else " "
    if _is_prompt(checkpoint):
        return f"{checkpoint.short_id}  {when} {mark} > {escape(_first_line(checkpoint.metadata['prompt']), 90)}"
    failed = " (failed)" if checkpoint.metadata.get("failed") else ""
    title = f"{checkpoint.step_name or ''} {_format_arguments(checkpoint.metadata.get('arguments'))}".strip()
    return f"{checkpoint.short_id}  {when} {mark}   {escape(title, 86)}{failed}"


def _format_arguments(arguments: Any) -> str:
    """Return a tool's arguments in a few words: the command, the file, or the first of them."""
    if not isinstance(arguments, dict):
        return ""
    for name in ("command", "file_path", "path", "notebook_path", "pattern", "url", "description"):
        if name in arguments:
            return _first_line(arguments[name])
    return _first_line(next(iter(arguments.values()), ""))


def _first_line(text: object) -> str:
    return str(text).strip().split("\n", 1)[0]
