"""`holdfast op log`: what was done that was no save, by whom, and what of it is undone."""

from __future__ import annotations

import click

from holdfast.cli.options import json_option, store_option


@click.group(short_help="The log of operations.")
def op() -> None:
    """The log of operations: what was done that was no save. `holdfast op log --json` for programs."""


@op.command(short_help="List the operations, newest first.")
@click.option("--session", metavar="S", help="Only those about this session.")
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(min=0), help="How many; 0 for all.")
@store_option
@json_option
def log(session: str | None, limit: int, store: str | None, as_json: bool) -> None:
    """List the operations, newest first: rollbacks, restores of files, expiries, forks, adoptions, tags, pins; undos and redos.

    `holdfast undo` takes back the last one that is not undone, `holdfast undo ID` any other, if nothing was built upon it.
    `holdfast gc` leaves the newest thousand.
    """
    from holdfast.cli.operation_output import operation_fields
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        found = client.operations(session, limit=limit or None)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"operations": [operation_fields(one) for one in found]})
    elif found:
        from holdfast.cli.printable import name
        from holdfast.cli.tables import print_table

        print_table(
            ("operation", "when (UTC)", "kind", "what", "by"),
            [
                (
                    one.short_id,
                    f"{one.at:%Y-%m-%d %H:%M:%S}",
                    f"{one.kind} (undone)" if one.is_undone else one.kind,
                    name(one.text()),
                    name(one.by),
                )
                for one in found
            ],
            shrinks=("what", "by"),
        )
    else:
        click.echo("no operations here yet", err=True)
