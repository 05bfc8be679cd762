"""`holdfast verify`: check that the store is complete and undamaged."""

from __future__ import annotations

import sys

import click

from holdfast.cli.options import common_options, make_not_found_error
from holdfast.cli.output.damaged import EXIT_CORRUPT
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape


@click.command(short_help="Read everything and verify its checksums.")
@click.argument("session", required=False)
@common_options
@click.pass_context
def verify(ctx: click.Context, session: str | None, store: str | None, as_json: bool) -> None:
    """Read everything in the store, or in SESSION, and verify its checksums.

    Exits with 5 if anything is damaged.
    """
    with open_store(store) as client:
        if sys.stderr.isatty():  # it may take a while
            click.echo("reading everything…", err=True)
        report = client.verify(session)
    if session is not None and not (report.checked or report.expired or report.problems):
        raise make_not_found_error(session)
    if as_json:
        print_json(
            {
                "ok": report.ok,
                "checked": report.checked,
                "expired": report.expired,
                "ended_chains": report.ended_chains,
                "problems": [
                    {
                        "checkpoint_id": problem.checkpoint_id or None,
                        "message": problem.message,
                        "affected": list(problem.affected),
                    }
                    for problem in report.problems
                ],
            }
        )
    else:
        for problem in report.problems:
            click.echo(f"damaged: {escape(problem.message)}")
            for id_ in problem.affected:
                click.echo(f"  {id_}  can't be restored exactly")
        summary = f"checked {report.checked} checkpoints, {len(report.problems)} problems"
        if report.expired:
            summary += f", {report.expired} expired"
        if report.ended_chains:
            summary += f", {report.ended_chains} whose parent has expired{'' if report.ok else ' or is damaged'}"
        click.echo(summary)
    if not report.ok:
        click.echo(
            "holdfast: not everything is what was saved. Keep a copy of the store; `holdfast timeline` lists the "
            "checkpoints, those not named above can be restored",
            err=True,
        )
        ctx.exit(EXIT_CORRUPT)
