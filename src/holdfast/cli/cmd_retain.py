"""`holdfast retain`: lets go what a policy does not keep."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, store_option
from holdfast.cli.quantities import duration, size

if TYPE_CHECKING:
    from datetime import timedelta

    from holdfast.model.reports import RetentionReport


@click.command(short_help="Let go what a policy does not keep: a dry run without --yes.")
@click.option("--keep-last", metavar="N", type=click.IntRange(min=0), help="Keep the newest N of each session.")
@click.option("--keep-every", metavar="N", type=click.IntRange(min=1), help="Keep each Nth of a session.")
@click.option("--older-than", metavar="30d", type=duration, help="Keep what is younger: 45s, 90m, 12h, 30d, 2w.")
@click.option(
    "--max-bytes", metavar="500MB", type=size, help="Let only as much go, oldest first, as is needed to fit in there."
)
@click.option("--session", metavar="S", help="Only checkpoints of this session may go.")
@click.option("--agent", metavar="A", help="Only checkpoints that this agent made may go.")
@click.option("--yes", "-y", is_flag=True, help="Do it. Without this, it only says what would go.")
@store_option
@json_option
def retain(
    keep_last: int | None,
    keep_every: int | None,
    older_than: timedelta | None,
    max_bytes: int | None,
    session: str | None,
    agent: str | None,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Let go what a policy does not keep: expire it, and collect. Without --yes, only say what would go.

    What a session stands at, what is pinned or tagged, and handoffs that wait always stay. Everything else goes unless
    one of the rules keeps it; with --max-bytes only as much of that, oldest first, as is needed. This can't be undone.
    """
    from holdfast.cli.store_location import open_store

    if (keep_last, keep_every, older_than, max_bytes) == (None, None, None, None):
        raise click.UsageError("say what to keep: --keep-last, --keep-every, --older-than or --max-bytes")
    with open_store(store) as client:
        report = client.retain(
            keep_last=keep_last,
            keep_every=keep_every,
            older_than=older_than,
            max_bytes=max_bytes,
            session_id=session,
            agent_id=agent,
            dry_run=not yes,
        )
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({**asdict(report), "fits": report.fits})
    else:
        _print(report)
    if report.dry_run and report.going:
        click.echo("nothing was done: add --yes to do it", err=True)


def _print(report: RetentionReport) -> None:
    from holdfast.cli.printable import byte_count, name
    from holdfast.cli.tables import print_table

    if report.sessions:
        print_table(
            ("session", "goes" if report.dry_run else "gone", "stays"),
            [(name(one.session_id), str(len(one.going)), str(one.kept)) for one in report.sessions],
            right=("goes", "gone", "stays"),
            shrinks=("session",),
        )
    would, about = ("would go", "about ") if report.dry_run else ("went", "")
    click.echo(f"{report.going} checkpoints {would}, {report.kept} stay")
    click.echo(f"{byte_count(report.bytes_before)} before, {about}{byte_count(report.bytes_after)} after")
    if not report.fits:
        click.echo(
            f"that is more than {byte_count(report.max_bytes or 0)}: all the rest is kept by heads, pins, tags or rules",
            err=True,
        )
