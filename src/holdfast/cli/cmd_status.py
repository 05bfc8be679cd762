"""`holdfast status`: what changed in a directory since its last snapshot."""

from __future__ import annotations

import click

from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option


@click.command(short_help="Show what changed in a directory since its last snapshot.")
@directory_option
@store_option
@json_option
def status(directory: str | None, store: str | None, as_json: bool) -> None:
    """Show which files changed since the last snapshot: A added, D deleted, M other content, P other permissions, T of
    another kind. Nothing is stored.
    """
    from holdfast.cli.store_location import open_store
    from holdfast.cli.workspace_option import open_workspace
    from holdfast.cli.workspaces import change_fields, print_changes

    with open_store(store) as client:
        changes = open_workspace(client, directory).status()
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"changes": [change_fields(change) for change in changes]})
        return
    print_changes(changes)
    if not changes:
        click.echo("nothing changed since the last snapshot", err=True)
