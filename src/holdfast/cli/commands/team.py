"""`holdfast team`: who works on delegated work, and who waits for whom."""

from __future__ import annotations

import click

from holdfast.cli.commands.topics import group_line
from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape, format_identifier, format_name, format_utc
from holdfast.json_form.team import team_fields
from holdfast.model.ids import short
from holdfast.model.team import Team


@click.command(short_help="Show who works on delegated work, and who waits.")
@click.argument("session")
@click.option("--check", is_flag=True, help="Exit with 1 if a session waits for work that no worker has.")
@common_options
def team(session: str, check: bool, store: str | None, as_json: bool) -> None:
    """Show SESSION and the work that it delegated: status, holder and waits of each session.

    Then the groups that consume its topics: those that the sessions have lately published to, consumed or waited for.

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


def _print(found: Team) -> None:
    for name in found.origins:
        click.echo(f"delegated by {format_identifier(name)}", err=True)
    for member in found.members:
        indent = "  " * member.depth
        holder = f" by {format_name(member.holder)}" if member.holder else ""
        agent = f"  ({format_name(member.agent_id)})" if member.agent_id else ""
        click.echo(f"{indent}{format_identifier(member.session_id)}  {member.status}{holder}{agent}")
        for handoff in member.handoffs:
            target = format_name(handoff.target_agent_id)
            click.echo(f"{indent}  handoff {handoff.checkpoint.short_id} to {target}: {handoff.status}")
        for wait in member.waits:
            targets = ", ".join(short(name) if wait.kind == "approval" else escape(name, 60) for name in wait.targets)
            click.echo(f"{indent}  waits since {format_utc(wait.since)} UTC ({wait.kind}) for {targets}")
    for group in found.groups:
        click.echo(f"topic {escape(group.topic, 60)}: group {group_line(group)}")
    for wait in found.unserved:
        names = ", ".join(escape(name, 60) for name in wait.unserved)
        click.echo(f"no worker has what {escape(wait.session_id, 60)} waits for: {names}", err=True)
