"""`holdfast import`: what other programs, or another holdfast store, have saved."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.import_file import import_file
from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.reports import ImportedReport, ImportRemark
    from holdfast.sync_client import SyncClient

EXIT_SKIPPED = 1
SKIPPED_SHOWN = 50
OWN = "file"  # the command for holdfast's own portable files: the word may be left out


class Sources(click.Group):
    """Takes a first word that names no program for the path of a file that `holdfast export` wrote."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):  # `import --check FILE`, `import -`
            args = [OWN, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            if not Path(args[0]).exists() and "." not in args[0] and "/" not in args[0]:
                programs = ", ".join(f"`holdfast import {name}`" for name in self.commands if name != OWN)
                raise click.UsageError(
                    f"{args[0]!r} is neither a file nor a program that can be imported from: there is {programs}", ctx
                )
            args = [OWN, *args]
        return super().resolve_command(ctx, args)


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Read everything and say what would be imported, but save nothing."
)


@click.group(name="import", cls=Sources, short_help="Take over an exported file, or what another program has saved.")
def import_() -> None:
    """Take over what `holdfast export` wrote (`holdfast import FILE`), or what another program has saved. What is there
    stays untouched, and so does the source.

    Importing the same again does nothing. Each command takes --store, --dry-run and --json.
    """


import_.add_command(import_file)


@import_.command(short_help="From a checkpnt 0.1 SQLite database.")
@click.argument("file", type=click.Path(path_type=Path))
@dry_run_option
@store_option
@json_option
@click.pass_context
def checkpnt(ctx: click.Context, file: Path, dry_run: bool, store: str | None, as_json: bool) -> None:
    """Import FILE, the SQLite database of checkpnt 0.1 (checkpnt_local.db).

    Ids, parents, dates, metadata and times to live are kept. Rows that checkpnt itself can no longer restore are
    imported as far as they can be read. Exits with 1 if anything was skipped; docs/moving-in.md says what may be.
    """
    with _target(store, dry_run=dry_run) as client:
        report = client.import_checkpnt(file, dry_run=dry_run)
    ctx.exit(_say(report, as_json=as_json))


@import_.command(short_help="From a .checkpoints/ directory.")
@click.argument("directory", type=click.Path(path_type=Path))
@dry_run_option
@store_option
@json_option
@click.pass_context
def providerprotocol(ctx: click.Context, directory: Path, dry_run: bool, store: str | None, as_json: bool) -> None:
    """Import DIRECTORY, the .checkpoints/ of @providerprotocol/agents, or of holdfast's FileCheckpoints.

    Each session's state becomes a checkpoint. Importing again adds what was saved there since. Exits with 1 if anything
    was skipped; docs/moving-in.md says what may be.
    """
    with _target(store, dry_run=dry_run) as client:
        report = client.import_providerprotocol(directory, dry_run=dry_run)
    ctx.exit(_say(report, as_json=as_json))


def _target(store: str | None, *, dry_run: bool) -> SyncClient:
    """The store to import to. To try it out, none is made."""
    from holdfast.cli.store_location import StoreNotFoundError, open_or_make_store, open_store
    from holdfast.sync_client import SyncClient

    if not dry_run:
        return open_or_make_store(store)
    try:
        return open_store(store)
    except StoreNotFoundError:
        return SyncClient.memory()


def _say(report: ImportedReport, *, as_json: bool) -> int:
    """Prints the report; the exit code."""
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"ok": report.ok, **asdict(report)})
    else:
        _say_in_words(report)
    return 0 if report.ok else EXIT_SKIPPED


def _say_in_words(report: ImportedReport) -> None:
    from holdfast.cli.printable import printable

    by_message: dict[str, list[ImportRemark]] = {}
    for remark in report.warnings:
        by_message.setdefault(remark.message, []).append(remark)
    for message, remarks in by_message.items():
        more = f" and {len(remarks) - 1} more" if len(remarks) > 1 else ""
        click.echo(f"warning  {printable(remarks[0].where)}{more}: {printable(message)}")
    for remark in report.skipped[:SKIPPED_SHOWN]:
        id_ = f" ({printable(remark.checkpoint_id, 40)})" if remark.checkpoint_id else ""
        click.echo(f"skipped  {printable(remark.where)}{id_}: {printable(remark.message)}")
    if len(report.skipped) > SKIPPED_SHOWN:
        click.echo(f"skipped  and {len(report.skipped) - SKIPPED_SHOWN} more: --json lists them all")
    said = "would import" if report.dry_run else "imported"
    counts = {
        f"{said} {report.imported} checkpoints of {len(report.sessions)} sessions": True,
        f"{report.recovered} of them could no longer be restored there": report.recovered,
        f"{report.already} were here already": report.already,
        f"{report.expired} have expired": report.expired,
        f"{len(report.warnings)} warnings": report.warnings,
        f"{len(report.skipped)} skipped": report.skipped,
    }
    click.echo(", ".join(text for text, is_said in counts.items() if is_said))
