"""`holdfast copy`: everything that is in one store into another, of any kind."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.options import json_option

EXIT_CONFLICT = 4


@click.command(short_help="Copy a store into another one, of any kind.")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--skip-conflicts", is_flag=True, help="Leave out the trees that differ from what TARGET has.")
@json_option
@click.pass_context
def copy(ctx: click.Context, source: str, target: str, skip_conflicts: bool, as_json: bool) -> None:
    """Copy everything in SOURCE into TARGET. Both are paths or URLs; TARGET is made if it is not there.

    Ids, dates and checksums stay what they are. Every tree is checked on the way, and is there whole or not at all. What
    TARGET has already is not written again: when a copy was interrupted, make it again. SOURCE is not changed.
    """
    from holdfast.cli.printable import byte_count, printable
    from holdfast.cli.progress import progress_bar
    from holdfast.cli.store_location import open_or_make_store, open_store

    with open_store(source) as old, open_or_make_store(target) as new, progress_bar("copying trees") as progress:
        report = old.copy_to(new, on_conflict="skip" if skip_conflicts else "error", progress=progress)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"source": source, "target": target, **asdict(report)})
    else:
        there = f", {report.already_there} were there already" if report.already_there else ""
        click.echo(
            f"copied {report.copied} checkpoints of {report.checkpoints} in {report.sessions} sessions{there}; "
            f"{byte_count(report.bytes_read)} read and checked"
        )
        for tree in report.skipped:
            click.echo(f"left out: {printable(tree.message, 300)}", err=True)
    if report.skipped:
        ctx.exit(EXIT_CONFLICT)
