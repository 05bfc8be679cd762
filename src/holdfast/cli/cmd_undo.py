"""`holdfast undo`: takes back the last restore of a directory."""

from __future__ import annotations

import click

from holdfast.cli.confirmation import confirmed, yes_option
from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option


@click.command(short_help="Take back the last restore of a directory.")
@click.option("--keep-user", is_flag=True, help="Leave what has changed since the restore as it is.")
@click.option("--force", is_flag=True, help="Overwrite also what has changed since the restore.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@yes_option
@directory_option
@store_option
@json_option
def undo(
    keep_user: bool, force: bool, dry_run: bool, yes: bool, directory: str | None, store: str | None, as_json: bool
) -> None:
    """Take back the last restore of a directory: the files that it changed, and the session's state if it moved that.

    Undoing again does it again.
    """
    from holdfast.cli.json_output import print_json
    from holdfast.cli.restore_output import report_fields, say_report, summary
    from holdfast.cli.store_location import open_store
    from holdfast.cli.workspace_option import chosen_directory

    keep = "user" if keep_user else None
    with open_store(store) as client:
        workspace = client.workspace(chosen_directory(directory))
        report = workspace.undo(keep=keep, force=force, dry_run=True)
        say_report(report)
        if not dry_run:
            refused = report.conflicts and not force  # said by the undo itself
            if report.actions and not refused and not confirmed(f"{summary(report)}: go on?", yes=yes):
                return
            report = workspace.undo(keep=keep, force=force)
    if as_json:
        print_json(report_fields(report))
    else:
        click.echo(summary(report))
    if not dry_run and report.safety_id is not None:
        click.echo("undo this, too: holdfast undo", err=True)
