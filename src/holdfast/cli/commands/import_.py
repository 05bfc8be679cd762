"""`holdfast import`: import the data of other programs, or of another holdfast store."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import StoreNotFoundError, open_or_make_store, open_store
from holdfast.cli.terminal.progress import progress_bar
from holdfast.cli.terminal.sanitize import escape, format_bytes
from holdfast.model.reports import ImportedReport, ImportRemark
from holdfast.model.transfer_report import ImportReport

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

EXIT_SKIPPED = 1
SKIPPED_SHOWN = 50

dry_run_option = click.option("--dry-run", is_flag=True, help="Read everything and report, but save nothing.")


def import_target(store: str | None, *, dry_run: bool) -> SyncClient:
    """Return the store to import to. A dry run makes none."""
    from holdfast.client.sync import SyncClient

    if not dry_run:
        return open_or_make_store(store)
    try:
        return open_store(store)
    except StoreNotFoundError:
        return SyncClient.memory()


def print_imported(report: ImportedReport, *, as_json: bool) -> int:
    """Prints the report; the exit code."""
    if as_json:
        print_json({"ok": report.ok, **asdict(report)})
    else:
        _print_remarks(report)
    return 0 if report.ok else EXIT_SKIPPED


def _print_remarks(report: ImportedReport) -> None:
    by_message: dict[str, list[ImportRemark]] = {}
    for remark in report.warnings:
        by_message.setdefault(remark.message, []).append(remark)
    for message, remarks in by_message.items():
        more = f" and {len(remarks) - 1} more" if len(remarks) > 1 else ""
        click.echo(f"warning  {escape(remarks[0].where)}{more}: {escape(message)}")
    for remark in report.skipped[:SKIPPED_SHOWN]:
        id_ = f" ({escape(remark.checkpoint_id, 40)})" if remark.checkpoint_id else ""
        click.echo(f"skipped  {escape(remark.where)}{id_}: {escape(remark.message)}")
    if len(report.skipped) > SKIPPED_SHOWN:
        click.echo(f"skipped  and {len(report.skipped) - SKIPPED_SHOWN} more: --json lists them all")
    verb = "would import" if report.dry_run else "imported"
    counts = {
        f"{verb} {report.imported} checkpoints of {len(report.sessions)} sessions": True,
        f"{report.recovered} of them could no longer be restored there": report.recovered,
        f"{report.already} were here already": report.already,
        f"{report.expired} have expired": report.expired,
        f"{len(report.warnings)} warnings": report.warnings,
        f"{len(report.skipped)} skipped": report.skipped,
    }
    click.echo(", ".join(text for text, is_shown in counts.items() if is_shown))


EXIT_CONFLICT = 4


@click.command(name="file", short_help="From a file of `holdfast export` (`file` is optional).")
@click.argument("file")
@click.option("--check", is_flag=True, help="Only verify the file and list its contents; needs no store.")
@click.option("--skip-conflicts", is_flag=True, help="Skip conflicting trees, and continue.")
@dry_run_option
@common_options
@click.pass_context
def import_file(
    ctx: click.Context, file: str, check: bool, skip_conflicts: bool, dry_run: bool, store: str | None, as_json: bool
) -> None:
    """Import FILE (- for stdin), written by `holdfast export`.

    The whole file is verified before anything is saved, and each tree is imported completely or not at all.
    Existing data stays. Existing data with different content is a conflict: exits with 4.
    """
    from holdfast.client.sync import SyncClient

    if file != "-" and not Path(file).exists():  # reported before a store is made for it
        raise StoreNotFoundError(f"{escape(file, 200)} could not be read: there is no such file")
    source = sys.stdin.buffer if file == "-" else file
    target = SyncClient.memory() if check else import_target(store, dry_run=dry_run)
    with target as client, progress_bar("importing") as progress:
        report = client.import_(
            source, on_conflict="skip" if skip_conflicts else "error", dry_run=dry_run or check, progress=progress
        )
    if as_json:
        print_json({"file": file, "checked_only": check, **asdict(report)})
    else:
        _print_import(report, check=check)
    if report.skipped:
        ctx.exit(EXIT_CONFLICT)


def _print_import(report: ImportReport, *, check: bool) -> None:
    for skipped in report.skipped:
        click.echo(f"skipped  {skipped.tree_id}: {escape(skipped.message)}")
    expired = f" and {report.tombstones} expired ones" if report.tombstones else ""
    if check:
        click.echo(
            f"ok: {report.checkpoints} checkpoints{expired} of {report.sessions} sessions in {report.trees} trees, "
            f"{format_bytes(report.size)}, sha256 {report.digest}"
        )
        return
    verb = "would import" if report.dry_run else "imported"
    text = f"{verb} {report.imported} checkpoints of {report.imported_sessions} sessions"
    if report.already_there:
        text += f", {report.already_there} were here already"
    if report.skipped:
        text += f", {len(report.skipped)} trees skipped"
    click.echo(text)


allow_option = click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="MODULE:CLASS",
    help="Allow a class of yours; imports its module, also from here. Repeatable.",
)


@click.command(name="langgraph-sqlite", short_help="From a database of LangGraph's SqliteSaver.")
@click.argument("file", type=click.Path(path_type=Path))
@allow_option
@dry_run_option
@common_options
@click.pass_context
def langgraph_sqlite(
    ctx: click.Context, file: Path, allowed: tuple[str, ...], dry_run: bool, store: str | None, as_json: bool
) -> None:
    """Import FILE, the SQLite database of LangGraph's SqliteSaver or AsyncSqliteSaver.

    Imports all threads and namespaces with checkpoints, ids, parents, metadata and pending writes; each is read
    back and compared. Graphs continue with HoldfastSaver. Nothing stored is executed. Exits with 1 if anything was
    skipped.
    """
    from holdfast.langgraph import import_sqlite

    ctx.exit(_import_langgraph(import_sqlite, file, allowed, store, dry_run=dry_run, as_json=as_json))


@click.command(name="langgraph-postgres", short_help="From a database of LangGraph's PostgresSaver.")
@click.argument("dsn")
@allow_option
@dry_run_option
@common_options
@click.pass_context
def langgraph_postgres(
    ctx: click.Context, dsn: str, allowed: tuple[str, ...], dry_run: bool, store: str | None, as_json: bool
) -> None:
    """Import from DSN, the PostgreSQL database of LangGraph's PostgresSaver or AsyncPostgresSaver.

    Works like langgraph-sqlite, in one read-only transaction.
    """
    from holdfast.langgraph import import_postgres

    ctx.exit(_import_langgraph(import_postgres, dsn, allowed, store, dry_run=dry_run, as_json=as_json))


def _import_langgraph(
    importer: Callable[..., ImportedReport],
    source: Path | str,
    allowed: tuple[str, ...],
    store: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    classes = _classes(allowed)
    with import_target(store, dry_run=dry_run) as client, progress_bar("importing") as progress:
        report = importer(client, source, allow=classes, dry_run=dry_run, progress=progress)
    return print_imported(report, as_json=as_json)


def _classes(names: tuple[str, ...]) -> list[type[Any]]:
    """Return the classes named on the command line; the user typed them, so they may be imported."""
    found: list[type[Any]] = []
    if names and "" not in sys.path:
        sys.path.insert(0, "")
    for name in names:
        module, _, qualname = name.partition(":")
        try:
            cls: Any = importlib.import_module(module)
            for part in qualname.split("."):
                cls = getattr(cls, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise click.BadParameter(f"{name!r} can't be imported: {error}", param_hint="--allow") from error
        if not isinstance(cls, type):
            raise click.BadParameter(f"{name!r} is no class", param_hint="--allow")
        found.append(cls)
    return found


OWN = "file"  # the command for holdfast's own portable files: the word may be left out


class ImportSources(click.Group):
    """A group whose first word may be the path of a file that `holdfast export` wrote."""

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


@click.group(name="import", cls=ImportSources, short_help="Import an exported file, or data of another program.")
def import_() -> None:
    """Import a file of `holdfast export` (`holdfast import FILE`), or data of another program.

    Neither existing data nor the source changes. Importing twice changes nothing. Each command
    takes --store, --dry-run and --json.
    """


import_.add_command(import_file)
import_.add_command(langgraph_sqlite)
import_.add_command(langgraph_postgres)


@import_.command(short_help="From a checkpnt 0.1 SQLite database.")
@click.argument("file", type=click.Path(path_type=Path))
@dry_run_option
@common_options
@click.pass_context
def checkpnt(ctx: click.Context, file: Path, dry_run: bool, store: str | None, as_json: bool) -> None:
    """Import FILE, the SQLite database of checkpnt 0.1 (checkpnt_local.db).

    Keeps ids, parents, dates, metadata and TTLs. Rows that checkpnt itself cannot restore are imported as far as
    they are readable. Exits with 1 if anything was skipped; docs/moving-in.md lists the reasons.
    """
    with import_target(store, dry_run=dry_run) as client:
        report = client.import_checkpnt(file, dry_run=dry_run)
    ctx.exit(print_imported(report, as_json=as_json))


@import_.command(short_help="From a .checkpoints/ directory.")
@click.argument("directory", type=click.Path(path_type=Path))
@dry_run_option
@common_options
@click.pass_context
def providerprotocol(ctx: click.Context, directory: Path, dry_run: bool, store: str | None, as_json: bool) -> None:
    """Import DIRECTORY, the .checkpoints/ of @providerprotocol/agents or of holdfast's FileCheckpoints.

    Each session's state becomes a checkpoint. Importing again adds newer states. Exits with 1 if anything was
    skipped; docs/moving-in.md lists the reasons.
    """
    with import_target(store, dry_run=dry_run) as client:
        report = client.import_providerprotocol(directory, dry_run=dry_run)
    ctx.exit(print_imported(report, as_json=as_json))
