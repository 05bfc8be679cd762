"""`holdfast verify`: is everything there, and is it what was saved?"""

from __future__ import annotations

import sys

import click

from holdfast.cli.options import json_option, store_option

EXIT_CORRUPT = 5


@click.command(short_help="Read everything, and check it.")
@click.argument("session", required=False)
@store_option
@json_option
@click.pass_context
def verify(ctx: click.Context, session: str | None, store: str | None, as_json: bool) -> None:
    """Read everything in the store, or in SESSION, and check it against its checksums.

    Exits with 5 if anything is not what was saved.
    """
    from holdfast.cli.printable import printable
    from holdfast.cli.store_location import open_store
    from holdfast.errors import CheckpointNotFoundError

    with open_store(store) as client:
        if sys.stderr.isatty():  # it may take a while
            click.echo("reading everything…", err=True)
        report = client.verify(session)
    if session is not None and not (report.checked or report.expired or report.problems):
        raise CheckpointNotFoundError(
            f"there is no session {printable(session, 60)!r} here. `holdfast sessions` lists what is there"
        )
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(
            {
                "ok": report.ok,
                "checked": report.checked,
                "expired": report.expired,
                "ended_chains": report.ended_chains,
                "problems": [
                    {"checkpoint_id": problem.checkpoint_id or None, "message": problem.message}
                    for problem in report.problems
                ],
            }
        )
    else:
        for problem in report.problems:
            click.echo(f"{problem.checkpoint_id or 'store'}  {printable(problem.message)}")
        said = f"checked {report.checked} checkpoints, {len(report.problems)} problems"
        if report.expired:
            said += f", {report.expired} expired"
        if report.ended_chains:
            said += f", {report.ended_chains} whose parent has expired"
        click.echo(said)
    if not report.ok:
        click.echo(
            "holdfast: not everything is what was saved. Keep a copy of the store; `holdfast timeline` lists the "
            "checkpoints, those not named above can be restored",
            err=True,
        )
        ctx.exit(EXIT_CORRUPT)
