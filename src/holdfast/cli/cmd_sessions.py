"""`holdfast sessions`: what is in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.listing import Session


@click.command(short_help="List the sessions, the one saved to last first.")
@click.option("--agent", metavar="A", help="Only sessions whose head this agent made or was handed.")
@click.option("-n", "count", metavar="N", type=click.IntRange(min=0), help="At most N; without it, all.")
@store_option
@json_option
def sessions(agent: str | None, count: int | None, store: str | None, as_json: bool) -> None:
    """List the sessions, the one saved to last first.

    A session is one line of execution: a run, a thread, a conversation. SAVES counts all that were ever saved to it,
    STEP and NAME are those of its head, the checkpoint it stands at.
    """
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        found = client.sessions(agent_id=agent, limit=count)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"sessions": [session_fields(session) for session in found]})
    elif found:
        from holdfast.cli.pager import paged

        with paged():
            _print(found)
    else:
        click.echo("no sessions here yet" + (f" of agent {agent!r:.60}" if agent else ""), err=True)


def session_fields(session: Session) -> dict[str, Any]:
    from holdfast.cli.json_output import checkpoint_fields

    return {
        "session_id": session.session_id,
        "agent_id": session.agent_id,
        "tree_id": session.tree_id,
        "saves": session.saves,
        "head": checkpoint_fields(session.head),
    }


def _print(found: list[Session]) -> None:
    from holdfast.cli.printable import name
    from holdfast.cli.tables import print_table

    print_table(
        ("session", "agent", "saves", "step", "name", "head", "saved (UTC)"),
        [
            (
                name(session.session_id),
                name(session.agent_id),
                str(session.saves),
                "" if session.head.step_index is None else str(session.head.step_index),
                name(session.head.step_name),
                session.head.short_id,
                f"{session.head.created_at:%Y-%m-%d %H:%M:%S}",
            )
            for session in found
        ],
        right=("saves", "step"),
        shrinks=("session", "agent", "name"),
    )
