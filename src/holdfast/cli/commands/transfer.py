"""`holdfast export`: a store, a tree or a session as one portable file."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from holdfast.cli.options import common_options, json_option
from holdfast.cli.output.files import format_count
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_or_make_store, open_store
from holdfast.cli.terminal.progress import progress_bar
from holdfast.cli.terminal.sanitize import escape, format_bytes
from holdfast.errors import UsageError
from holdfast.model.transfer_report import CopyReport

EXIT_CONFLICT = 4


@click.command(short_help="Copy a store into another one, of any kind.")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--skip-conflicts", is_flag=True, help="Skip conflicting trees.")
@click.option("--plain", is_flag=True, help="Copy a sealed SOURCE into a store that is not encrypted.")
@json_option
@click.pass_context
def copy(ctx: click.Context, source: str, target: str, skip_conflicts: bool, plain: bool, as_json: bool) -> None:
    """Copy everything in SOURCE into TARGET. Both are paths or URLs; TARGET is created if missing.

    Keeps ids, dates and checksums. Each tree is verified, and copied completely or not at all. Existing data is not
    written again: repeat an interrupted copy. SOURCE does not change.

    If HOLDFAST_KEYS or HOLDFAST_KEYS_FILE is set, both are sealed stores; `holdfast encrypt` copies a
    plain one.
    """
    with (
        open_store(source) as old,
        open_or_make_store(target, with_keys=not plain) as new,
        progress_bar("copying trees") as progress,
    ):
        report = old.copy_to(new, on_conflict="skip" if skip_conflicts else "error", plain=plain, progress=progress)
    _print_copied(ctx, source, target, report, as_json=as_json)


def _print_copied(ctx: click.Context, source: str, target: str, report: CopyReport, *, as_json: bool) -> None:
    if as_json:
        print_json({"source": source, "target": target, **asdict(report)})
    else:
        existing = f", {report.already_there} were there already" if report.already_there else ""
        click.echo(
            f"copied {report.copied} checkpoints of {report.checkpoints} in {report.sessions} sessions{existing}; "
            f"{format_bytes(report.bytes_read)} read and checked"
        )
        for tree in report.skipped:
            click.echo(f"left out: {escape(tree.message, 300)}", err=True)
    if report.skipped:
        ctx.exit(EXIT_CONFLICT)


@click.command(short_help="Copy a store into a new one that is encrypted.")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--skip-conflicts", is_flag=True, help="Skip conflicting trees.")
@json_option
@click.pass_context
def encrypt(ctx: click.Context, source: str, target: str, skip_conflicts: bool, as_json: bool) -> None:
    """Copy everything in the plain store SOURCE into TARGET, which becomes a sealed store.

    HOLDFAST_KEYS_FILE or HOLDFAST_KEYS has the keys. SOURCE does not change and may be in use: repeat the
    command to copy what was saved meanwhile. Once all writers use TARGET, destroy SOURCE and its backups.
    """
    from holdfast.sealing.key_ring import keys_from_environment

    if keys_from_environment()[0] is None:
        raise UsageError("no keys: set HOLDFAST_KEYS_FILE to a key file. `holdfast keys new FILE` makes one")
    with (
        open_store(source, with_keys=False) as old,
        open_or_make_store(target) as new,
        progress_bar("encrypting trees") as progress,
    ):
        report = old.copy_to(new, on_conflict="skip" if skip_conflicts else "error", progress=progress)
    _print_copied(ctx, source, target, report, as_json=as_json)


@click.command(short_help="Export a store or sessions to one portable file.")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("-o", "--output", metavar="FILE", required=True, help="Output file; - for stdout.")
@click.option("--tree", "whole_tree", is_flag=True, help="Include each SESSION's whole tree.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--plain", is_flag=True, help="Export a sealed store: the file is not encrypted.")
@common_options
def export(
    sessions: tuple[str, ...], output: str, whole_tree: bool, force: bool, plain: bool, store: str | None, as_json: bool
) -> None:
    """Export the whole store, or each SESSION with its ancestors, to one portable file.

    `holdfast import` reads the file. Checkpoints whose TTL passed are left out. Everything is
    verified. The same content gives the same bytes from every kind of store.
    """
    to_stdout = output == "-"
    if to_stdout and as_json:
        raise click.UsageError("--json and the file can't both go to stdout: name a file with -o")
    if to_stdout and sys.stdout.isatty():
        raise click.UsageError("the file is not for a terminal: name one with -o, or send it elsewhere with |")
    if not to_stdout and not force and Path(output).exists():
        raise UsageError(f"{escape(output, 200)} is there already: --force puts the new one in its place")
    target = sys.stdout.buffer if to_stdout else output
    with open_store(store) as client, progress_bar("exporting") as progress:
        report = client.export(target, list(sessions) or None, whole_tree=whole_tree, plain=plain, progress=progress)
    if as_json:
        print_json({"file": output, **asdict(report)})
        return
    click.echo(
        f"exported {report.checkpoints} checkpoints of {report.sessions} sessions, {format_bytes(report.size)}, "
        f"sha256 {report.digest}",
        err=to_stdout,
    )
    if report.expired_by_ttl:
        click.echo(f"left out {format_count(report.expired_by_ttl, 'checkpoint')}: the time to live is over", err=True)
    if not to_stdout:
        click.echo(f"take it over elsewhere: holdfast import {escape(output, 200)}", err=True)
