"""`holdfast reject`: a call must not be carried out."""

from __future__ import annotations

import click

from holdfast.cli.deciding import deciding_options
from holdfast.cli.options import json_option, store_option


@click.command(short_help="Reject a call: it is not carried out.")
@click.argument("approval_id", metavar="ID")
@deciding_options
@store_option
@json_option
def reject(approval_id: str, by: str | None, note: str | None, store: str | None, as_json: bool) -> None:
    """Reject the call that waits as ID: it is not carried out. What asked for it is told, with --note as the reason.

    ID is what `holdfast approvals` lists, or the last 8 or more digits of it. Exits with 4 if somebody has decided about it
    already.
    """
    from holdfast.cli.approval_output import approval_of_ref, say_decided, show_call
    from holdfast.cli.deciding import who
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        found = approval_of_ref(client, approval_id)
        show_call(found)
        decided = client.decide(found.approval_id, "reject", by=who(by), note=note)
    say_decided(decided, as_json=as_json)
