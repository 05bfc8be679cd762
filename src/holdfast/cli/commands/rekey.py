"""`holdfast rekey`: another key protects a sealed store."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.options import common_options, confirm, yes_option
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.errors import UsageError


@click.command(short_help="Protect a sealed store with another key.")
@click.option("--status", "only_status", is_flag=True, help="Show the keys that protect the store; change nothing.")
@click.option("--data", is_flag=True, help="Also encrypt the data again, under new keys of its own.")
@click.option("--destroy-old", is_flag=True, help="Remove the keys that --data replaced from the store.")
@yes_option
@common_options
def rekey(only_status: bool, data: bool, destroy_old: bool, yes: bool, store: str | None, as_json: bool) -> None:
    """Protect the store with the primary key of the key file, the first one in it, and with no other key.

    The file must still have the key that protects the store now. Writers go on. Afterwards the older
    key is needed for older backups only.

    With --data, everything but large values and files is also encrypted again, under new keys of its
    own; the keys of large values and files come from their contents. Repeat it after an interruption:
    it resumes. The replaced keys are still accepted. Once every process has been restarted that had the
    store open before, --destroy-old removes them.
    """
    if only_status and (data or destroy_old):
        raise UsageError("--status changes nothing: leave out --data and --destroy-old")
    question = "Remove the old keys? What processes that still have them write later can't be read."
    if destroy_old and not confirm(question, yes=yes):
        return
    with open_store(store) as client:
        status = client.key_status() if only_status else client.rekey(data=data, destroy_old=destroy_old)
    if as_json:
        print_json({**asdict(status), "is_current": status.is_current})
        return
    click.echo(f"protected by {', '.join(status.protected_by)}; keys of {status.trees} trees, epoch {status.epoch}")
    if status.is_resealing:
        click.echo(
            f"{status.trees_current} of {status.trees} trees have a new key: holdfast rekey --data resumes", err=True
        )
    elif status.old_epochs:
        old = ", ".join(map(str, status.old_epochs))
        click.echo(f"keys of epoch {old} are still accepted: holdfast rekey --destroy-old", err=True)
    if not status.is_current:
        click.echo(f"the primary key of the key file is {status.primary}: holdfast rekey", err=True)
