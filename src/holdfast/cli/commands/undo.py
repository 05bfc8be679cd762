"""`holdfast undo`: undo an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import (
    Command,
    common_options,
    confirm,
    limit_option,
    overwrite_options,
    plan_option,
    yes_option,
)
from holdfast.cli.options_workspace import directory_option, find_workspace, try_workspace
from holdfast.cli.output.json import print_json
from holdfast.cli.output.left_behind import print_left_behind
from holdfast.cli.output.listing import Column, print_listing
from holdfast.cli.output.operation import describe_undo
from holdfast.cli.output.restore import format_summary, print_report
from holdfast.cli.store_location import open_store
from holdfast.cli.suggestions import CommandGroup
from holdfast.cli.terminal.sanitize import escape, format_name, format_utc
from holdfast.json_form.operation import operation_fields, undo_fields
from holdfast.model.file_restore_report import UndoReport
from holdfast.model.operation import Operation

if TYPE_CHECKING:
    from holdfast.workspace.api import SyncWorkspace


def run_undo(
    kind: str, ref: str | None, *, keep_user: bool, force: bool, dry_run: bool, yes: bool, directory: str | None,
    store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Undo or redo an operation: show the plan for files, ask, do it, and print how to revert that."""
    keep = "user" if keep_user else None
    with open_store(store) as client:
        workspace = try_workspace(client, directory, find_workspace)
        act = client.undo if kind == "undo" else client.redo
        report: UndoReport = act(
            ref, workspace=_choose_workspace(ref, directory, workspace), keep=keep, force=force, dry_run=True
        )
        if report.files is not None:
            print_report(report.files)
        if not dry_run:
            files = report.files
            refused = files is not None and files.conflicts and not force  # reported by the undo itself
            asked = files is not None and (files.actions or files.state is not None) and not refused
            if files is not None and asked and not confirm(f"{format_summary(files)}: continue?", yes=yes):
                return
            # The same one, whatever others have done since.
            named = ref if report.operation is None else ref or report.operation.operation_id
            report = act(named, workspace=_choose_workspace(ref, directory, workspace), keep=keep, force=force)
        if as_json:
            print_json(undo_fields(report))
        else:
            verb = {"undo": "undid", "redo": "redid"}[report.kind]
            click.echo(f"{f'would {report.kind}' if dry_run else verb} {describe_undo(client, report)}")
        if report.state is not None and report.files is None:
            print_left_behind(report.state)
        for item in report.left:
            click.echo(f"  left: {item}", err=True)
        if not dry_run:
            # By its id: exactly that one, whatever is done before. An operation without a log entry is
            # undone by its opposite.
            back = "redo" if report.kind == "undo" else "undo"
            again = back if report.operation_id is None else f"undo {report.operation_id[-8:]}"
            click.echo(f"undo this, too: holdfast {again}", err=True)


def _choose_workspace(ref: str | None, directory: str | None, workspace: SyncWorkspace | None) -> SyncWorkspace | None:
    """Return the directory argument of an undo; a named operation knows its own directory."""
    return None if ref is not None and directory is None else workspace


@click.group(cls=CommandGroup, short_help="Show the log of operations.")
def op() -> None:
    """Show the log of operations: every change other than a save. `holdfast op log --json` for programs."""


@op.command(short_help="List operations, newest first.")
@click.option("--session", metavar="S", help="List only operations of this session.")
@limit_option
@common_options
def log(session: str | None, limit: int, store: str | None, as_json: bool) -> None:
    """List operations, newest first: every change other than a save.

    They are rollbacks, restores of files, expiries, forks, adoptions, tags, pins, undos and redos.
    `holdfast undo` reverts the newest that is not undone, `holdfast undo ID` any other, unless
    later work depends on it. `holdfast gc` keeps the newest thousand.
    """
    with open_store(store) as client:
        found = client.operations(session, limit=limit or None)
    nothing = "no operations here yet"
    print_listing("operations", found, operation_fields, COLUMNS, nothing=nothing, as_json=as_json)


COLUMNS: tuple[Column[Operation], ...] = (
    Column("operation", lambda operation: operation.short_id),
    Column("when (UTC)", lambda operation: format_utc(operation.at)),
    Column("kind", lambda operation: f"{operation.kind} (undone)" if operation.is_undone else operation.kind),
    Column("what", lambda operation: escape(operation.text(), 400), "whole"),
    Column("by", lambda operation: format_name(operation.by), "shrinks"),
)


def undo_options(command: Command) -> Command:
    """Add the argument and the options that `undo` and `redo` share."""
    for decorate in (common_options, directory_option, yes_option, plan_option, overwrite_options("")):
        command = decorate(command)
    return click.argument("operation", metavar="[OP]", required=False)(command)


@click.command(short_help="Redo the operation undone last, or a named one.")
@undo_options
def redo(operation: str | None, **options: Any) -> None:
    """Redo the operation undone last, or the one with this id.

    Refuses if anything changed since the undo. After a new operation, pass an id.
    """
    run_undo("redo", operation, **options)


@click.command(short_help="Undo the last operation, or a named one.")
@undo_options
def undo(operation: str | None, **options: Any) -> None:
    """Undo the newest operation that is not undone, or the one with this id.

    Operations are rollbacks, restores of files, expiries, forks, adoptions, tags and pins. `holdfast op log` lists
    them; `holdfast redo` redoes one.

    Prints the direction of the change. Refuses if later work depends on it, and says so. An expiry can be undone
    until `holdfast gc` runs. Skips restores of other directories (--dir names one) unless you pass their id. One
    outside the store's own directory needs --dir.
    """
    run_undo("undo", operation, **options)
