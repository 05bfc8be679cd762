"""`holdfast export`: a store, a tree or a session as one portable file."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from holdfast.cli.options import json_option, store_option


@click.command(short_help="Write a store or some sessions to one portable file.")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("-o", "--output", metavar="FILE", required=True, help="The file to write; - for stdout.")
@click.option("--tree", "whole_tree", is_flag=True, help="With each SESSION also its forks and all others of its tree.")
@click.option("--force", is_flag=True, help="Put it in the place of a file that is there.")
@store_option
@json_option
def export(
    sessions: tuple[str, ...], output: str, whole_tree: bool, force: bool, store: str | None, as_json: bool
) -> None:
    """Write each SESSION, with those it was forked from, or without any the whole store, to one file that `holdfast
    import` reads into any store.

    Everything is checked on the way. The same content gives the same bytes, whatever kind of store it is in.
    """
    from holdfast.cli.printable import byte_count, printable
    from holdfast.cli.progress import progress_bar
    from holdfast.cli.store_location import open_store
    from holdfast.errors import UsageError

    to_stdout = output == "-"
    if to_stdout and as_json:
        raise click.UsageError("--json and the file can't both go to stdout: name a file with -o")
    if to_stdout and sys.stdout.isatty():
        raise click.UsageError("the file is not for a terminal: name one with -o, or send it elsewhere with |")
    if not to_stdout and not force and Path(output).exists():
        raise UsageError(f"{printable(output, 200)} is there already: --force puts the new one in its place")
    target = sys.stdout.buffer if to_stdout else output
    with open_store(store) as client, progress_bar("exporting") as progress:
        report = client.export(target, list(sessions) or None, whole_tree=whole_tree, progress=progress)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"file": output, **asdict(report)})
        return
    click.echo(
        f"exported {report.checkpoints} checkpoints of {report.sessions} sessions, {byte_count(report.size)}, "
        f"sha256 {report.digest}",
        err=to_stdout,
    )
    if not to_stdout:
        click.echo(f"take it over elsewhere: holdfast import {printable(output, 200)}", err=True)
