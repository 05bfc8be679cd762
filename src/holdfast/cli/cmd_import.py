"""`holdfast import`: what other programs, or another holdfast store, have saved."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.import_file import import_file
from holdfast.cli.import_langgraph import langgraph_postgres, langgraph_sqlite
from holdfast.cli.import_output import dry_run_option, import_target, say_imported
from holdfast.cli.options import json_option, store_option

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


@click.group(name="import", cls=Sources, short_help="Take over an exported file, or what another program has saved.")
def import_() -> None:
    """Take over what `holdfast export` wrote (`holdfast import FILE`), or what another program has saved. What is there
    stays untouched, and so does the source.

    Importing the same again does nothing. Each command takes --store, --dry-run and --json.
    """


import_.add_command(import_file)
import_.add_command(langgraph_sqlite)
import_.add_command(langgraph_postgres)


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
    with import_target(store, dry_run=dry_run) as client:
        report = client.import_checkpnt(file, dry_run=dry_run)
    ctx.exit(say_imported(report, as_json=as_json))


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
    with import_target(store, dry_run=dry_run) as client:
        report = client.import_providerprotocol(directory, dry_run=dry_run)
    ctx.exit(say_imported(report, as_json=as_json))
