"""`holdfast restore`: a directory, a session's state or both, as they were at a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.confirmation import confirmed, yes_option
from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option

if TYPE_CHECKING:
    from holdfast.model.restore_report import RestoreReport
    from holdfast.sync_client import SyncClient
    from holdfast.workspace.workspace import SyncWorkspace


@click.command(short_help="Put files back as they were at a checkpoint, or a session, or both.")
@click.argument("ref", required=False)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--files", is_flag=True, help="The files (the default).")
@click.option("--state", is_flag=True, help="The session's state: its head moves to the checkpoint.")
@click.option("--all", "both", is_flag=True, help="Files and state.")
@click.option("--keep-user", is_flag=True, help="Leave what has changed since the last snapshot as it is.")
@click.option("--force", is_flag=True, help="Overwrite also what has changed since the last snapshot.")
@click.option("--any-directory", is_flag=True, help="Put them here also if they are the files of another directory.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--resume", is_flag=True, help="Finish a restore that was cut off.")
@click.option("--rollback", is_flag=True, help="Put back what a restore has changed that was cut off.")
@yes_option
@directory_option
@store_option
@json_option
def restore(
    ref: str | None, paths: tuple[str, ...], files: bool, state: bool, both: bool, keep_user: bool, force: bool, any_directory: bool,
    dry_run: bool, resume: bool, rollback: bool, yes: bool, directory: str | None, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Put files back as they were at a checkpoint, or a session, or both.

    REF is an id, the last 8 or more digits of one, a tag, or a session, which stands for its head. With PATH only these
    files and directories. Everything that is there is kept in a safety snapshot first, and `holdfast undo` brings it
    back. What has changed since the last snapshot is not overwritten unless you say so; what is ignored is never touched.
    """
    from holdfast.cli.store_location import open_store

    if resume or rollback:
        _check_finishing(ref, resume=resume, rollback=rollback)
    elif ref is None:
        raise click.UsageError("Missing argument 'REF'.")
    with open_store(store) as client:
        if resume or rollback:
            workspace = _workspace(client, directory)
            report = workspace.resume(force=force) if resume else workspace.roll_back(force=force)
            _say(report, directory, as_json=as_json, undo=resume)
            return
        assert ref is not None
        _restore(
            client,
            ref,
            paths,
            "both" if both or (files and state) else "state" if state else "files",
            directory,
            keep_user=keep_user,
            force=force,
            any_directory=any_directory,
            dry_run=dry_run,
            yes=yes,
            as_json=as_json,
        )


def _workspace(client: SyncClient, directory: str | None) -> SyncWorkspace:
    from holdfast.cli.workspace_option import chosen_workspace

    return chosen_workspace(client, directory)


def _check_finishing(ref: str | None, *, resume: bool, rollback: bool) -> None:
    if resume and rollback:
        raise click.UsageError("--resume and --rollback exclude each other")
    if ref is not None:
        raise click.UsageError("a restore that was cut off is finished where it was going: leave REF out")


def _restore(
    client: SyncClient, ref: str, paths: tuple[str, ...], scope: str, directory: str | None, *, keep_user: bool,
    force: bool, any_directory: bool, dry_run: bool, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    import os

    from holdfast.cli.progress import progress_bar
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.restore_output import say_report, summary

    target = id_of_ref(client, ref)
    workspace = _workspace(client, directory)
    how: dict[str, Any] = {
        "scope": scope,
        "keep": "user" if keep_user else None,
        "force": force,
        "any_directory": any_directory,
        # A path is named from where one stands, as everywhere on the command line.
        "paths": [os.path.abspath(path) for path in paths],  # noqa: PTH100 - a link at the end is what is meant, not its target
    }
    if dry_run or workspace.interrupted() is None:  # a plan upon what is half done would say nothing that holds
        planned = workspace.restore(target, **how, dry_run=True)
        if dry_run:
            _say(planned, directory, as_json=as_json, undo=False)
            return
        say_report(planned)
        moves = scope != "files" or planned.actions
        if moves and not (planned.conflicts and not force) and not confirmed(f"{summary(planned)}: go on?", yes=yes):
            return
    with progress_bar("restoring") as progress:
        report = workspace.restore(target, **how, progress=progress)
    _say(report, directory, as_json=as_json, undo=True, listed=False)


def _say(report: RestoreReport, directory: str | None, *, as_json: bool, undo: bool, listed: bool = True) -> None:
    from holdfast.cli.json_output import print_json
    from holdfast.cli.restore_output import report_fields, say_report, summary

    if as_json:
        print_json(report_fields(report))
    else:
        if listed:
            say_report(report)
        click.echo(summary(report))
    if undo and report.safety_id is not None:
        where = "" if directory is None else f" --dir {directory}"
        click.echo(f"undo: holdfast undo{where}", err=True)
    elif undo and report.state is not None and report.state.from_id is not None:
        click.echo(f"undo: holdfast restore {report.state.from_id[-8:]} --state", err=True)
