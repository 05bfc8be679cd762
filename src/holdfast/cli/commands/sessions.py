"""`holdfast sessions`: the sessions of the store."""

from __future__ import annotations

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.listing import Column, print_listing
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import format_identifier, format_name, format_number, format_utc
from holdfast.json_form.checkpoint import session_fields
from holdfast.model.listing import Session


@click.command(short_help="List sessions, most recently saved first.")
@click.option("--agent", metavar="A", help="List only sessions whose head this agent saved or was handed.")
@click.option("-n", "--limit", "count", metavar="N", type=click.IntRange(min=0), help="List at most N.  [default: all]")
@common_options
def sessions(agent: str | None, count: int | None, store: str | None, as_json: bool) -> None:
    """List sessions, most recently saved first.

    A session is one line of execution: a run, a thread, a conversation. SAVES counts all saves ever made; STEP and
    NAME are those of its head.
    """
    with open_store(store) as client:
        found = client.sessions(agent_id=agent, limit=count)
    nothing = "no sessions here yet" + (f" of agent {agent!r:.60}" if agent else "")
    print_listing("sessions", found, session_fields, COLUMNS, nothing=nothing, as_json=as_json)


COLUMNS: tuple[Column[Session], ...] = (
    Column("session", lambda session: format_identifier(session.session_id), "whole"),
    Column("agent", lambda session: format_identifier(session.agent_id), "whole"),
    Column("saves", lambda session: str(session.saves), "right"),
    Column("step", lambda session: format_number(session.head.step_index), "right"),
    Column("name", lambda session: format_name(session.head.step_name), "shrinks"),
    Column("head", lambda session: session.head.short_id),
    Column("saved (UTC)", lambda session: format_utc(session.head.created_at)),
)
