"""`holdfast status`: the store at a glance, and a directory's changes since its last snapshot."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import common_options
from holdfast.cli.options_workspace import directory_option, forked_from, open_workspace, try_workspace
from holdfast.cli.output.files import format_count, format_path, print_changes
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import locate
from holdfast.cli.terminal.sanitize import escape, format_bytes, format_identifier
from holdfast.json_form.difference import change_fields
from holdfast.json_form.run import run_fields
from holdfast.model.run_status import RunState
from holdfast.model.snapshot import FileChange, LeftOut
from holdfast.model.store_status import Overview

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

LISTED = 3


@click.command(short_help="Show the store, and changed files of a directory.")
@click.option("--left-out", is_flag=True, help="List excluded paths with reason and size.")
@directory_option
@common_options
def status(left_out: bool, directory: str | None, store: str | None, as_json: bool) -> None:
    """Show the store, active runs, pending approvals, and files changed since the last snapshot.

    A file is A added, D deleted, M modified, P of other permissions, or T of another kind, since the last snapshot
    or restore. Stores nothing.
    """
    location = locate(store)
    size = location.file_size()
    with location.open() as client:
        overview = client.overview(sizes=size is None)
        if size is not None:
            overview = replace(overview, stored_bytes=size)
        changes = _changes(client, directory)
        omitted = open_workspace(client, directory).left_out() if left_out else None
        attention = _attention(client)
    if as_json:
        print_json(
            {
                "store": str(location),
                "found_by": location.how,
                **_fields(overview),
                "runs": attention,
                "alive": [run_fields(run) for run in overview.alive],
                "changes": [change_fields(change) for change in changes or ()],
                "has_snapshot": changes is not None,
                **({} if omitted is None else {"left_out": [_omitted_fields(item) for item in omitted]}),
            }
        )
        return
    _print_overview(str(location), overview, attention)
    for item in omitted or ():
        much = f"{format_bytes(item.size)} in {item.files} files"
        click.echo(f"left out   {format_path(item.path)}: {much} ({escape(item.reason)})", err=True)
    if changes is None:
        click.echo("files      no snapshot of this directory yet: `holdfast snap` takes one", err=True)
        return
    click.echo(f"files      {len(changes) or 'nothing'} changed since the last snapshot or restore", err=True)
    print_changes(changes)


def _changes(client: SyncClient, directory: str | None) -> list[FileChange] | None:
    """Return the changes; None if there is no snapshot to compare with."""
    workspace = try_workspace(client, directory)
    if workspace is None:
        return None
    made_from = forked_from(workspace)
    if made_from is not None:
        return workspace.diff(made_from)
    return workspace.status() if workspace.is_known() else None


def _omitted_fields(left_out: LeftOut) -> dict[str, Any]:
    return {"path": left_out.text, "reason": left_out.reason, "files": left_out.files, "bytes": left_out.size}


def _attention(client: SyncClient) -> dict[str, int]:
    """Return how many runs have failed, are in doubt, or were interrupted."""
    states = (RunState.FAILED, RunState.IN_DOUBT, RunState.INTERRUPTED)
    counted = Counter(str(run.status) for run in client.runs(status=states))
    return {str(state).replace(" ", "_"): counted[str(state)] for state in states}


def _fields(overview: Overview) -> dict[str, Any]:
    return {
        "backend": overview.backend,
        "durability": overview.durability,
        "stored_bytes": overview.stored_bytes,
        "sessions": overview.sessions,
        "saves": overview.saves,
        "approvals": overview.approvals,
    }


def _print_overview(location: str, overview: Overview, attention: dict[str, int]) -> None:
    alive = ", ".join(format_identifier(run.session_id) for run in overview.alive[:LISTED])
    more = f" and {len(overview.alive) - LISTED} more: `holdfast runs`" if len(overview.alive) > LISTED else ""
    facts = {
        "store": f"{escape(location)} ({overview.backend}, {format_bytes(overview.stored_bytes or 0)})",
        "holds": f"{format_count(overview.saves, 'save')} to {format_count(overview.sessions, 'session')}",
        "alive": f"{alive}{more}" if overview.alive else "no run",
        "approvals": f"{overview.approvals} wait: `holdfast approvals`" if overview.approvals else "none wait",
    }
    troubles = [f"{count} {state.replace('_', ' ')}" for state, count in attention.items() if count]
    if troubles:
        facts["runs"] = f"{', '.join(troubles)}: `holdfast runs`"
    for title, text in facts.items():
        click.echo(f"{title:<11}{text}", err=True)
