"""`holdfast import`: what other programs, or another holdfast store, have saved."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.options import json_option, store_option

OWN = "file"  # the command for holdfast's own portable files: the word may be left out


class Sources(click.Group):
    """Takes a first word that names no program for the path of a file that `holdfast export` wrote."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            if OWN not in self.commands:
                programs = ", ".join(f"`holdfast import {name}`" for name in self.commands)
                raise click.UsageError(f"{args[0]!r} is no program that can be imported from: there is {programs}", ctx)
            args = [OWN, *args]
        return super().resolve_command(ctx, args)


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Read everything and say what would be imported, but save nothing."
)


@click.group(name="import", cls=Sources, short_help="Take over what another program has saved.")
def import_() -> None:
    """Take over what another program has saved. What is there stays untouched, and so does the source.

    Importing the same again does nothing. Each command takes --store, --dry-run and --json.
    """


@import_.command(short_help="From a checkpnt 0.1 SQLite database.")
@click.argument("file", type=click.Path(path_type=Path))
@dry_run_option
@store_option
@json_option
def checkpnt(file: Path, dry_run: bool, store: str | None, as_json: bool) -> None:
    """Import FILE, the SQLite database of checkpnt 0.1 (checkpnt_local.db)."""
    raise click.UsageError(f"{file}: not there yet ({dry_run=}, {store=}, {as_json=})")


@import_.command(short_help="From a .checkpoints/ directory.")
@click.argument("directory", type=click.Path(path_type=Path))
@dry_run_option
@store_option
@json_option
def providerprotocol(directory: Path, dry_run: bool, store: str | None, as_json: bool) -> None:
    """Import DIRECTORY, the .checkpoints/ of @providerprotocol/agents, or of holdfast's FileCheckpoints."""
    raise click.UsageError(f"{directory}: not there yet ({dry_run=}, {store=}, {as_json=})")
