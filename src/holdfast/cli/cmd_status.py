"""`holdfast status`: the store at a glance, and what changed in a directory since its last snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option

if TYPE_CHECKING:
    from holdfast.model.overview import Overview
    from holdfast.model.workspace import FileChange, LeftOut
    from holdfast.sync_client import SyncClient

LISTED = 3


@click.command(short_help="Show the store at a glance, and what changed in a directory.")
@click.option("--left-out", is_flag=True, help="Say what snapshots leave out here, why, and how much that is.")
@directory_option
@store_option
@json_option
def status(left_out: bool, directory: str | None, store: str | None, as_json: bool) -> None:
    """Show which store this is, how much it takes, which runs are alive, and how many approvals wait; and which files
    changed since the last snapshot: A added, D deleted, M other content, P other permissions, T of another kind.
    Nothing is stored.
    """
    from holdfast.cli.printable import byte_count, printable
    from holdfast.cli.store_location import locate
    from holdfast.cli.workspace_option import open_workspace
    from holdfast.cli.workspaces import shown_path

    location = locate(store)
    size = location.file_size()
    with location.open() as client:
        overview = client.overview(sizes=size is None)
        if size is not None:
            overview = replace(overview, stored_bytes=size)
        changes = _changes(client, directory)
        omitted = open_workspace(client, directory).left_out() if left_out else None
    if as_json:
        from holdfast.cli.cmd_runs import run_fields
        from holdfast.cli.json_output import print_json
        from holdfast.cli.workspaces import change_fields

        print_json(
            {
                "store": str(location),
                "found_by": location.how,
                **_fields(overview),
                "alive": [run_fields(run) for run in overview.alive],
                "changes": [change_fields(change) for change in changes or ()],
                "has_snapshot": changes is not None,
                **({} if omitted is None else {"left_out": [_omitted_fields(one) for one in omitted]}),
            }
        )
        return
    _say(str(location), overview)
    for one in omitted or ():
        much = f"{byte_count(one.size)} in {one.files} files"
        click.echo(f"left out   {shown_path(one.path)}: {much} ({printable(one.reason)})", err=True)
    if changes is None:
        click.echo("files      no snapshot of this directory yet: `holdfast snap` takes one", err=True)
        return
    from holdfast.cli.workspaces import print_changes

    words = f"{len(changes)} changed since the last snapshot" if changes else "nothing changed since the last snapshot"
    click.echo(f"files      {words}", err=True)
    print_changes(changes)


def _changes(client: SyncClient, directory: str | None) -> list[FileChange] | None:
    """What changed; None if there is nothing to compare it with."""
    from holdfast.cli.workspace_option import open_workspace
    from holdfast.errors import UsageError

    try:
        workspace = open_workspace(client, directory)
    except UsageError:
        if directory is not None:
            raise
        return None  # the root of the file system, or a home directory: nobody asked about it
    return workspace.status() if workspace.is_known() else None


def _omitted_fields(one: LeftOut) -> dict[str, Any]:
    return {"path": one.text, "reason": one.reason, "files": one.files, "bytes": one.size}


def _fields(overview: Overview) -> dict[str, Any]:
    return {
        "backend": overview.backend,
        "durability": overview.durability,
        "stored_bytes": overview.stored_bytes,
        "sessions": overview.sessions,
        "saves": overview.saves,
        "approvals": overview.approvals,
    }


def _say(location: str, overview: Overview) -> None:
    from holdfast.cli.printable import byte_count, name, printable

    alive = ", ".join(name(run.session_id) for run in overview.alive[:LISTED])
    more = f" and {len(overview.alive) - LISTED} more: `holdfast runs`" if len(overview.alive) > LISTED else ""
    facts = {
        "store": f"{printable(location)} ({overview.backend}, {byte_count(overview.stored_bytes or 0)})",
        "holds": f"{overview.saves} saves to {overview.sessions} sessions",
        "alive": f"{alive}{more}" if overview.alive else "no run",
        "approvals": f"{overview.approvals} wait: `holdfast approvals`" if overview.approvals else "none wait",
    }
    for title, text in facts.items():
        click.echo(f"{title:<11}{text}", err=True)
