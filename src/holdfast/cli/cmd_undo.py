"""`holdfast undo`: takes back an operation."""

from __future__ import annotations

import click

from holdfast.cli.confirmation import yes_option
from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option


@click.command(short_help="Take back the last operation, or another one.")
@click.argument("operation", metavar="[OP]", required=False)
@click.option("--keep-user", is_flag=True, help="Leave files that have changed since as they are.")
@click.option("--force", is_flag=True, help="Overwrite also files that have changed since.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@yes_option
@directory_option
@store_option
@json_option
def undo(
    operation: str | None, keep_user: bool, force: bool, dry_run: bool, yes: bool, directory: str | None,
    store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Take back the last operation that is not undone, or the one of that id: a rollback, a restore of files, an expiry, a
    fork, an adoption, a tag, a pin. `holdfast op log` lists them; `holdfast redo` does it again.

    What was built upon since is left alone, and said. An expiry can be undone until `holdfast gc` has run. With --dir, the
    last restore of that directory; restores of other directories are passed by unless they are named.
    """
    from holdfast.cli.store_location import open_store
    from holdfast.cli.taking_back import take_back

    keep = "user" if keep_user else None
    with open_store(store) as client:
        take_back(
            client, "undo", operation, directory, keep=keep, force=force, dry_run=dry_run, yes=yes, as_json=as_json
        )
