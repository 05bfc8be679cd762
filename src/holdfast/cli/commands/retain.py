"""`holdfast retain`: apply a retention policy."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.json_input import parse_duration, parse_size
from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import format_bytes, format_identifier
from holdfast.cli.terminal.table import print_table
from holdfast.json_form.operation import retention_fields
from holdfast.model.reports import RetentionReport


@click.command(short_help="Apply a retention policy (a dry run without --yes).")
@click.option("--keep-last", metavar="N", type=click.IntRange(min=0), help="Keep the newest N of each session.")
@click.option("--keep-every", metavar="N", type=click.IntRange(min=1), help="Keep every Nth of a session.")
@click.option("--older-than", metavar="30d", type=parse_duration, help="Keep younger ones: 45s, 90m, 12h, 30d, 2w.")
@click.option("--max-bytes", metavar="500MB", type=parse_size, help="Remove only the oldest, until the store fits.")
@click.option("--session", metavar="S", help="Remove only from this session.")
@click.option("--agent", metavar="A", help="Remove only checkpoints of this agent.")
@click.option("--yes", "-y", is_flag=True, help="Apply the policy. Without it, only report.")
@common_options
def retain(session: str | None, agent: str | None, yes: bool, store: str | None, as_json: bool, **rules: Any) -> None:
    """Apply a retention policy: expire what it does not keep, then collect garbage.

    Without --yes, only reports. Heads, pins, tags and open handoffs always stay. All other
    checkpoints are removed unless a rule keeps them; with --max-bytes, only the oldest of these,
    until the store fits. This cannot be undone.
    """
    if all(rule is None for rule in rules.values()):
        raise click.UsageError("say what to keep: --keep-last, --keep-every, --older-than or --max-bytes")
    with open_store(store) as client:
        report = client.retain(**rules, session_id=session, agent_id=agent, dry_run=not yes)
    if as_json:
        print_json(retention_fields(report))
    else:
        _print(report)
    if report.dry_run and report.going:
        click.echo("nothing was done: add --yes to do it", err=True)


def _print(report: RetentionReport) -> None:
    if report.sessions:
        print_table(
            ("session", "goes" if report.dry_run else "gone", "stays"),
            [
                (format_identifier(session.session_id), str(len(session.going)), str(session.kept))
                for session in report.sessions
            ],
            right=("goes", "gone", "stays"),
            whole=("session",),
        )
    would, about = ("would go", "about ") if report.dry_run else ("went", "")
    click.echo(f"{report.going} checkpoints {would}, {report.kept} stay")
    click.echo(f"{format_bytes(report.bytes_before)} before, {about}{format_bytes(report.bytes_after)} after")
    if not report.fits:
        click.echo(
            f"that is more than {format_bytes(report.max_bytes or 0)}: heads, pins, tags or rules keep the rest",
            err=True,
        )
