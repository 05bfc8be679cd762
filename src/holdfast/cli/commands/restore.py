"""`holdfast restore`: restore a directory, a session's state or both to a checkpoint."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import common_options, confirm, overwrite_options, plan_option, yes_option
from holdfast.cli.options_workspace import admission_options, directory_option, find_workspace
from holdfast.cli.output.json import print_json
from holdfast.cli.output.operation import print_how_to_undo
from holdfast.cli.output.restore import format_summary, print_dry_run, print_report
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.progress import progress_bar
from holdfast.json_form.operation import report_fields
from holdfast.model.file_restore_report import RestoreReport

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient


@click.command(short_help="Restore files, a session's state, or both.")
@click.argument("ref", required=False)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--files", is_flag=True, help="Restore files (default).")
@click.option("--state", is_flag=True, help="Restore the state: move the session's head.")
@click.option("--all", "both", is_flag=True, help="Restore files and state.")
@overwrite_options(" the last snapshot")
@click.option("--any-directory", is_flag=True, help="Allow files of another directory.")
@admission_options
@plan_option
@click.option("--resume", is_flag=True, help="Finish an interrupted restore.")
@click.option("--rollback", is_flag=True, help="Roll back an interrupted restore.")
@yes_option
@directory_option
@common_options
def restore(
    ref: str | None, paths: tuple[str, ...], files: bool, state: bool, both: bool, resume: bool, rollback: bool,
    keep_user: bool, force: bool, dry_run: bool, yes: bool, directory: str | None, store: str | None, as_json: bool,
    **how: Any,
) -> None:  # fmt: skip
    """Restore files, a session's state, or both, as of a checkpoint.

    REF is an id, its last 8 or more digits, a tag, or a session (its head). PATH limits the restore to files and
    directories. A safety snapshot of everything is taken first, and `holdfast undo` restores it. Files changed
    since the last snapshot are not overwritten unless you say so; ignored files are never touched.
    """
    if resume or rollback:
        _check_finishing(ref, resume=resume, rollback=rollback)
    elif ref is None:
        raise click.UsageError("Missing argument 'REF'.")
    with open_store(store) as client:
        workspace = find_workspace(client, directory)
        if resume or rollback:
            report = workspace.resume(force=force) if resume else workspace.roll_back(force=force)
            _print_restored(client, report, as_json=as_json, undo=resume)
            return
        target = client.resolve(str(ref))
        how |= {
            "scope": "both" if both or (files and state) else "state" if state else "files",
            "keep": "user" if keep_user else None,
            "force": force,
            # A path is named from where one stands, as everywhere on the command line.
            "paths": [os.path.abspath(path) for path in paths],  # noqa: PTH100 - a final link is meant, not its target
        }
        if dry_run or workspace.interrupted() is None:  # a plan based on a half-done restore would not hold
            planned = workspace.restore(target, **how, dry_run=True)
            if dry_run:
                _print_restored(client, planned, as_json=as_json, undo=False)
                print_dry_run()
                return
            print_report(planned)
            moves = how["scope"] != "files" or planned.actions
            refused = planned.conflicts and not force
            if moves and not refused and not confirm(f"{format_summary(planned)}: continue?", yes=yes):
                return
        with progress_bar("restoring") as progress:
            report = workspace.restore(target, **how, progress=progress)
        _print_restored(client, report, as_json=as_json, undo=True, listed=False)


def _check_finishing(ref: str | None, *, resume: bool, rollback: bool) -> None:
    if resume and rollback:
        raise click.UsageError("--resume and --rollback exclude each other")
    if ref is not None:
        raise click.UsageError("a restore that was cut off is finished where it was going: leave REF out")


def _print_restored(
    client: SyncClient, report: RestoreReport, *, as_json: bool, undo: bool, listed: bool = True
) -> None:
    if as_json:
        print_json(report_fields(report))
    else:
        if listed:
            print_report(report)
        click.echo(format_summary(report))
    moved = report.state is not None and report.state.from_id != report.state.to_id
    if undo and (report.safety_id is not None or moved):
        print_how_to_undo(client)
