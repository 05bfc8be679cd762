"""`holdfast release`: gives back what `holdfast claim` took."""

from __future__ import annotations

import click

from holdfast.cli.options import json_option, store_option
from holdfast.cli.tokens import token_option


@click.command(short_help="Give a claimed handoff back.")
@click.argument("ref")
@token_option(required=True)
@store_option
@json_option
def release(ref: str, token: int, store: str | None, as_json: bool) -> None:
    """Give the handoff REF back: others can claim it, and write to its session. Exits with 4 if the claim was over."""
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.store_location import open_store
    from holdfast.errors import LeaseLostError
    from holdfast.leases import SyncLease

    with open_store(store) as client:
        checkpoint = client.get(id_of_ref(client, ref))
        held = SyncLease(client._services, checkpoint.session_id, "", 0.0, token, 0)
        if not held.release():
            raise LeaseLostError(
                f"the claim of token {token} was over already: it ran out, was released, or was taken over. "
                "`holdfast inbox AGENT --all` says who has the handoff"
            )
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"session_id": checkpoint.session_id, "released": True})
    else:
        click.echo(f"released {checkpoint.short_id}", err=True)
