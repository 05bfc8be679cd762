"""`holdfast handoff`: addresses a checkpoint to an agent."""

from __future__ import annotations

import click

from holdfast.cli.options import json_option, store_option
from holdfast.cli.tokens import token_option


@click.command(short_help="Hand a checkpoint to another agent.")
@click.argument("ref")
@click.argument("agent")
@click.option("--schema", metavar="S", help="The contract that the state follows.")
@token_option()
@store_option
@json_option
def handoff(ref: str, agent: str, schema: str | None, token: int | None, store: str | None, as_json: bool) -> None:
    """Hand the checkpoint REF to AGENT, and print the id of the handoff.

    The handoff becomes the head of its session. Handing on a handoff ends it for the agent that it was addressed to. While
    a session is claimed or leased, only its holder may do so: give the --token.
    """
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.store_location import open_store
    from holdfast.cli.tokens import under_token

    with open_store(store) as client:
        source = client.get(id_of_ref(client, ref))
        lease = under_token(source.session_id, token)
        made = client.get(client.handoff(source.checkpoint_id, agent, schema, lease=lease))
    if as_json:
        from holdfast.cli.json_output import checkpoint_fields, print_json

        print_json({"handoff_id": made.checkpoint_id, "checkpoint": checkpoint_fields(made)})
        return
    from holdfast.cli.printable import name

    click.echo(made.checkpoint_id)
    click.echo(
        f"{made.short_id} waits for {name(agent)}, until somebody runs: holdfast claim {made.short_id} --agent ...\n"
        f"to take it back: holdfast expire {made.short_id}",
        err=True,
    )
