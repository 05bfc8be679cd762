"""`holdfast redo`: does again what was undone."""

from __future__ import annotations

import click

from holdfast.cli.confirmation import yes_option
from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option


@click.command(short_help="Do again what was undone.")
@click.argument("operation", metavar="[OP]", required=False)
@click.option("--keep-user", is_flag=True, help="Leave files that have changed since as they are.")
@click.option("--force", is_flag=True, help="Overwrite also files that have changed since.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@yes_option
@directory_option
@store_option
@json_option
def redo(
    operation: str | None, keep_user: bool, force: bool, dry_run: bool, yes: bool, directory: str | None,
    store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Do again what was undone last, or the operation of that id, if everything is still as the undo has left it."""
    from holdfast.cli.store_location import open_store
    from holdfast.cli.taking_back import take_back

    keep = "user" if keep_user else None
    with open_store(store) as client:
        take_back(
            client, "redo", operation, directory, keep=keep, force=force, dry_run=dry_run, yes=yes, as_json=as_json
        )
