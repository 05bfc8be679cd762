"""`holdfast import FILE`: what `holdfast export` wrote, here or elsewhere."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.bundle import ImportReport
    from holdfast.sync_client import SyncClient

EXIT_CONFLICT = 4


@click.command(name="file", short_help="From a file that `holdfast export` wrote (the word may be left out).")
@click.argument("file")
@click.option("--check", is_flag=True, help="Only check the file and say what is in it: no store is needed.")
@click.option("--skip-conflicts", is_flag=True, help="Leave out trees that differ from what is here, and go on.")
@click.option("--dry-run", is_flag=True, help="Read everything and say what would be imported, but save nothing.")
@store_option
@json_option
@click.pass_context
def import_file(
    ctx: click.Context, file: str, check: bool, skip_conflicts: bool, dry_run: bool, store: str | None, as_json: bool
) -> None:
    """Import FILE (- for stdin), which `holdfast export` wrote.

    All of it is checked before anything is saved, and each tree is imported whole or not at all. What is here already
    stays as it is. What is here with other content is a conflict: exits with 4.
    """
    from holdfast.cli.printable import printable
    from holdfast.cli.progress import progress_bar
    from holdfast.cli.store_location import StoreNotFoundError

    if file != "-" and not Path(file).exists():  # said before a store is made for it
        raise StoreNotFoundError(f"{printable(file, 200)} could not be read: there is no such file")
    source = sys.stdin.buffer if file == "-" else file
    with _target(store, dry_run=dry_run, check=check) as client, progress_bar("importing") as progress:
        report = client.import_(
            source,
            on_conflict="skip" if skip_conflicts else "error",
            dry_run=dry_run or check,
            progress=progress,
        )
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"file": file, "checked_only": check, **asdict(report)})
    else:
        _say(report, check=check)
    if report.skipped:
        ctx.exit(EXIT_CONFLICT)


def _target(store: str | None, *, dry_run: bool, check: bool) -> SyncClient:
    """The store to import to. To try it out, none is made."""
    from holdfast.cli.store_location import StoreNotFoundError, open_or_make_store, open_store
    from holdfast.sync_client import SyncClient

    if not (dry_run or check):
        return open_or_make_store(store)
    if check:
        return SyncClient.memory()
    try:
        return open_store(store)
    except StoreNotFoundError:
        return SyncClient.memory()


def _say(report: ImportReport, *, check: bool) -> None:
    from holdfast.cli.printable import byte_count, printable

    for skipped in report.skipped:
        click.echo(f"skipped  {skipped.tree_id}: {printable(skipped.message)}")
    expired = f" and {report.tombstones} expired ones" if report.tombstones else ""
    if check:
        click.echo(
            f"ok: {report.checkpoints} checkpoints{expired} of {report.sessions} sessions in {report.trees} trees, "
            f"{byte_count(report.size)}, sha256 {report.digest}"
        )
        return
    said = "would import" if report.dry_run else "imported"
    text = f"{said} {report.imported} checkpoints of {report.imported_sessions} sessions"
    if report.already_there:
        text += f", {report.already_there} were here already"
    if report.skipped:
        text += f", {len(report.skipped)} trees skipped"
    click.echo(text)
