"""`holdfast keys`: key files, and the key rows of a sealed store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from holdfast.cli.options import common_options, json_option
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import UsageError


@click.group(short_help="Make keys; export and import the key rows of a store.")
def keys() -> None:
    """Make the keys of sealed stores, and keep what a backup needs.

    Commands find the keys in the file that HOLDFAST_KEYS_FILE names, or in HOLDFAST_KEYS. Each takes
    --json.
    """


@keys.command(short_help="Add a new key to a key file.")
@click.argument("file", metavar="FILE")
@json_option
def new(file: str, as_json: bool) -> None:
    """Add a new random key to FILE, as its primary key; make the file if there is none.

    Older keys stay in it: `holdfast rekey` makes them superfluous.
    """
    from holdfast.sealing.key_ring import KeyRing

    ring = KeyRing.new_key(file)
    if as_json:
        print_json({"file": file, "primary": ring.primary})
        return
    click.echo(f"key {ring.primary} is the primary key of {escape(file, 200)}")
    click.echo("keep a copy of the file where the store is not: without it nothing can be read", err=True)


@keys.command("export", short_help="Export the key rows of a store, wrapped.")
@click.option("-o", "--output", metavar="FILE", required=True, help="Output file, which must not exist.")
@common_options
def export_(output: str, store: str | None, as_json: bool) -> None:
    """Write the key rows of the store to FILE. They are wrapped: without the key file they open nothing.

    Keep the file with the backups of the store, and write a new one after `holdfast rekey`.
    """
    with open_store(store) as client:
        try:
            client.export_keys(output)
        except FileExistsError as error:
            raise UsageError(f"{escape(output, 200)} is there already: name a new file") from error
        status = client.key_status()
    if as_json:
        print_json({"file": output, **asdict(status), "is_current": status.is_current})
    else:
        click.echo(f"exported the key rows of {status.trees} trees, protected by {', '.join(status.protected_by)}")


@keys.command("import", short_help="Put back the key rows of a store.")
@click.argument("file", metavar="FILE")
@common_options
def import_(file: str, store: str | None, as_json: bool) -> None:
    """Put back the key rows that `holdfast keys export` wrote to FILE, if they are of this store.

    A backup of the store from before a `holdfast rekey` then opens with the new key.
    """
    if not Path(file).is_file():
        raise UsageError(f"there is no file {escape(file, 200)}")
    with open_store(store) as client:
        report = client.import_keys(file)
    if as_json:
        print_json({"file": file, **asdict(report)})
    else:
        click.echo(f"put back {report.put_back} key rows; {report.already_there} were there already")
