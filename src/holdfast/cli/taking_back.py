"""`holdfast undo` and `holdfast redo`: the same, in opposite directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.confirmation import confirmed

if TYPE_CHECKING:
    from holdfast.model.restore_report import UndoReport
    from holdfast.sync_client import SyncClient
    from holdfast.workspace.workspace import SyncWorkspace


def take_back(
    client: SyncClient, kind: str, ref: str | None, directory: str | None, *, keep: str | None, force: bool, dry_run: bool,
    yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Says what will be done to files, asks, does it, and says how to take that back."""
    from holdfast.cli.json_output import print_json
    from holdfast.cli.left_behind import say_left_behind
    from holdfast.cli.operation_output import told, undo_fields
    from holdfast.cli.restore_output import say_report, summary
    from holdfast.errors import CheckpointNotFoundError

    workspace = _workspace(client, directory)
    act = client.undo if kind == "undo" else client.redo
    if ref is None and directory is not None:
        ref = _last_of(client, kind, workspace)
    try:
        report: UndoReport = act(ref, workspace=_given(ref, directory, workspace), keep=keep, force=force, dry_run=True)
    except CheckpointNotFoundError as nothing:
        if kind != "undo" or ref is not None or workspace is None:
            raise
        try:
            undo_files(workspace, keep=keep, force=force, dry_run=dry_run, yes=yes, as_json=as_json)
        except CheckpointNotFoundError:
            raise nothing from None
        return
    if report.files is not None:
        say_report(report.files)
    if not dry_run:
        files = report.files
        refused = files is not None and files.conflicts and not force  # said by the undo itself
        asked = files is not None and (files.actions or files.state is not None) and not refused
        if files is not None and asked and not confirmed(f"{summary(files)}: go on?", yes=yes):
            return
        # The same one, whatever others have done since.
        named = ref or report.operation.operation_id
        report = act(named, workspace=_given(named, directory, workspace), keep=keep, force=force)
    if as_json:
        print_json(undo_fields(report))
    elif report.files is not None:
        click.echo(summary(report.files))
    else:
        verb = {"undo": "undid", "redo": "redid"}[report.kind]
        click.echo(f"{f'would {report.kind}' if dry_run else verb} {told(report.operation)}")
    if report.state is not None and report.files is None:
        say_left_behind(report.state)
    for one in report.left:
        click.echo(f"  left: {one}", err=True)
    if not dry_run and report.operation_id is not None:
        click.echo(f"undo this, too: holdfast undo {report.operation_id[-8:]}", err=True)


def undo_files(
    workspace: SyncWorkspace, *, keep: str | None, force: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Takes back the last restore of a directory by its own journal: where the log has nothing left, or never had."""
    from holdfast.cli.json_output import print_json
    from holdfast.cli.restore_output import report_fields, say_report, summary

    report = workspace.undo(keep=keep, force=force, dry_run=True)
    say_report(report)
    if not dry_run:
        refused = report.conflicts and not force
        if report.actions and not refused and not confirmed(f"{summary(report)}: go on?", yes=yes):
            return
        report = workspace.undo(keep=keep, force=force)
    if as_json:
        print_json({"kind": "undo", "operation": None, "operation_id": None, **report_fields(report)})
    else:
        click.echo(summary(report))
    if not dry_run and report.safety_id is not None:
        click.echo("undo this, too: holdfast undo", err=True)


def _workspace(client: SyncClient, directory: str | None) -> SyncWorkspace | None:
    """The directory that is meant, if one can be: not every place is one to work in."""
    from holdfast.cli.workspace_option import chosen_workspace
    from holdfast.errors import UsageError

    try:
        return chosen_workspace(client, directory)
    except UsageError:
        if directory is not None:
            raise
        return None


def _given(ref: str | None, directory: str | None, workspace: SyncWorkspace | None) -> SyncWorkspace | None:
    """An operation that is named knows its own directory."""
    return None if ref is not None and directory is None else workspace


def _last_of(client: SyncClient, kind: str, workspace: SyncWorkspace | None) -> str | None:
    """The last operation on the files of a directory that was named; None if the log has none."""
    assert workspace is not None
    for found in client.operations(limit=None):
        about = any(one.kind == "files" and one.name == str(workspace.path) for one in found.changes)
        if about and found.of is None and found.is_undone == (kind == "redo"):
            return found.operation_id
    return None
