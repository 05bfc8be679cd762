"""`holdfast snap`: a snapshot of a directory."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.options import common_options
from holdfast.cli.options_workspace import check_workspace_root, directory_option, find_directory, open_workspace
from holdfast.cli.output.files import format_count, format_path
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_or_make_store
from holdfast.cli.terminal.progress import counter
from holdfast.cli.terminal.sanitize import format_bytes
from holdfast.json_form.difference import snapshot_fields
from holdfast.model.snapshot import SnapshotReport


@click.command(short_help="Take a snapshot of a directory's files.")
@click.option("-m", "message", metavar="TEXT", help="Description, shown by `holdfast timeline`.")
@click.option("--session", metavar="S", help="Session of the snapshot.  [default: the directory's own]")
@click.option("--deep", is_flag=True, help="Read every file again.")
@directory_option
@common_options
def snap(
    message: str | None, session: str | None, deep: bool, directory: str | None, store: str | None, as_json: bool
) -> None:
    """Take a snapshot of all files of a directory, as a checkpoint.

    Excludes ignored files, rebuildable directories (such as node_modules beside package.json) and the directory's
    own .git, and prints how many. Without a store, creates one in .holdfast/ here.
    """
    check_workspace_root(find_directory(directory))
    with open_or_make_store(store) as client, counter("files") as counted:
        workspace = open_workspace(client, directory)
        report = workspace.snapshot(message, session_id=session, deep=deep, progress=counted)
    if as_json:
        print_json(_fields(report))
    else:
        _print(report)
    if report.snapshot.not_taken is not None:
        raise SystemExit(1)


def _print(report: SnapshotReport) -> None:
    snapshot = report.snapshot
    if snapshot.not_taken is not None:
        click.echo(f"holdfast: {snapshot.not_taken.reason}", err=True)
        return
    click.echo(report.checkpoint_id)
    click.echo(
        f"{format_count(snapshot.files, 'file')}, {format_bytes(snapshot.size)}; {report.changed} changed "
        "since the last snapshot",
        err=True,
    )
    if snapshot.excluded_count:
        first = ", ".join(format_path(path.path) for path in snapshot.excluded[:3])
        more = ", …" if snapshot.excluded_count > 3 else ""
        click.echo(f"left out by rules: {snapshot.excluded_count} ({first}{more}); `--json` says by which", err=True)
    for skipped_path in snapshot.skipped[:10]:
        click.echo(f"skipped: {format_path(skipped_path.path)}: {skipped_path.reason}", err=True)
    if len(snapshot.skipped) > 10:
        click.echo(f"skipped: {len(snapshot.skipped) - 10} more; `--json` lists them", err=True)
    for note in snapshot.notes:
        click.echo(f"note: {note}", err=True)


def _fields(report: SnapshotReport) -> dict[str, Any]:
    return {
        "checkpoint_id": report.checkpoint_id,
        "session_id": report.session_id,
        "changed": report.changed,
        **snapshot_fields(report.snapshot),
    }
