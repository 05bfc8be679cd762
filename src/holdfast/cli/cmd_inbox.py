"""`holdfast inbox`: what was handed to an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.handoff import Handoff


@click.command(short_help="List what was handed to an agent, the oldest first.")
@click.argument("agent")
@click.option("--all", "include_claimed", is_flag=True, help="Also what somebody has claimed, or went on from.")
@store_option
@json_option
def inbox(agent: str, include_claimed: bool, store: str | None, as_json: bool) -> None:
    """List the handoffs to AGENT that can be claimed, the oldest first.

    STATUS is "open", or "timed out" if somebody claimed it and the time ran out. With --all also "claimed", "taken up"
    once somebody went on from it, and "passed on" once it was handed to another agent; BY says who did so.
    """
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        found = client.inbox(agent, include_claimed=include_claimed)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"agent_id": agent, "handoffs": [handoff_fields(handoff) for handoff in found]})
    elif found:
        _print(found)
    else:
        click.echo(f"nothing waits for agent {agent!r:.60}", err=True)


def handoff_fields(handoff: Handoff) -> dict[str, Any]:
    from holdfast.cli.json_output import checkpoint_fields, moment

    return {
        "handoff_id": handoff.handoff_id,
        "short_id": handoff.checkpoint.short_id,
        "session_id": handoff.session_id,
        "from_agent_id": handoff.from_agent_id,
        "target_agent_id": handoff.target_agent_id,
        "schema": handoff.schema,
        "offered_at": moment(handoff.offered_at),
        "status": str(handoff.status),
        "by": handoff.by,
        "since": moment(handoff.since) if handoff.since else None,
        "next_id": handoff.next_id,
        "checkpoint": checkpoint_fields(handoff.checkpoint),
    }


def _print(found: list[Handoff]) -> None:
    from holdfast.cli.printable import name
    from holdfast.cli.tables import print_table

    print_table(
        ("handoff", "from", "session", "schema", "offered (UTC)", "status", "by"),
        [
            (
                handoff.checkpoint.short_id,
                name(handoff.from_agent_id),
                name(handoff.session_id),
                name(handoff.schema),
                f"{handoff.offered_at:%Y-%m-%d %H:%M:%S}",
                str(handoff.status),
                name(handoff.by),
            )
            for handoff in found
        ],
        shrinks=("from", "session", "schema", "by"),
    )
