"""`holdfast team`: who works on delegated work, and who waits for whom."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.commands.handoff import handoff_fields
from holdfast.cli.options import common_options
from holdfast.cli.output.json import format_time, print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape, format_identifier, format_name, format_utc
from holdfast.model.ids import short
from holdfast.model.team import Team, TeamMember, TeamWait


@click.command(short_help="Show who works on delegated work, and who waits.")
@click.argument("session")
@click.option("--check", is_flag=True, help="Exit with 1 if a session waits for work that no worker has.")
@common_options
def team(session: str, check: bool, store: str | None, as_json: bool) -> None:
    """Show SESSION and the work that it delegated: status, holder and waits of each session.

    A wait is shown once it has lasted a second. A worker that died on this machine is known at once, another one when
    its lease has expired.
    """
    with open_store(store) as client:
        found = client.team(session)
    if as_json:
        print_json(team_fields(found))
    else:
        _print(found)
    if check and found.unserved:
        raise click.exceptions.Exit(1)


def team_fields(found: Team) -> dict[str, Any]:
    return {
        "session_id": found.session_id,
        "origins": list(found.origins),
        "members": [_fields(one) for one in found.members],
        "unserved": [_wait_fields(one) for one in found.unserved],
    }


def _fields(one: TeamMember) -> dict[str, Any]:
    return {
        "session_id": one.session_id,
        "parent_id": one.parent_id,
        "depth": one.depth,
        "agent_id": one.agent_id,
        "status": one.status,
        "holder": one.holder,
        "since": format_time(one.since) if one.since else None,
        "handoff_id": one.handoff_id,
        "handoffs": [handoff_fields(handoff) for handoff in one.handoffs],
        "waits": [_wait_fields(wait) for wait in one.waits],
    }


def _wait_fields(wait: TeamWait) -> dict[str, Any]:
    return {
        "session_id": wait.session_id,
        "kind": wait.kind,
        "targets": list(wait.targets),
        "since": format_time(wait.since),
        "until": format_time(wait.until) if wait.until else None,
        "unserved": list(wait.unserved),
    }


def _print(found: Team) -> None:
    for name in found.origins:
        click.echo(f"delegated by {format_identifier(name)}", err=True)
    for one in found.members:
        indent = "  " * one.depth
        holder = f" by {format_name(one.holder)}" if one.holder else ""
        agent = f"  ({format_name(one.agent_id)})" if one.agent_id else ""
        click.echo(f"{indent}{format_identifier(one.session_id)}  {one.status}{holder}{agent}")
        for handoff in one.handoffs:
            target = format_name(handoff.target_agent_id)
            click.echo(f"{indent}  handoff {handoff.checkpoint.short_id} to {target}: {handoff.status}")
        for wait in one.waits:
            targets = ", ".join(short(name) if wait.kind == "approval" else escape(name, 60) for name in wait.targets)
            click.echo(f"{indent}  waits since {format_utc(wait.since)} UTC ({wait.kind}) for {targets}")
    for wait in found.unserved:
        names = ", ".join(escape(name, 60) for name in wait.unserved)
        click.echo(f"no worker has what {escape(wait.session_id, 60)} waits for: {names}", err=True)
