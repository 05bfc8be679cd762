"""`holdfast snap`: a snapshot of a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option

if TYPE_CHECKING:
    from holdfast.model.workspace import SnapshotReport


@click.command(short_help="Take a snapshot of a directory's files.")
@click.option("-m", "message", metavar="TEXT", help="What it is: shown by `holdfast timeline`.")
@click.option("--session", metavar="S", help="The session it belongs to.  [default: one of the directory's own]")
@click.option("--deep", is_flag=True, help="Read every file again, whatever its times say.")
@directory_option
@store_option
@json_option
def snap(
    message: str | None, session: str | None, deep: bool, directory: str | None, store: str | None, as_json: bool
) -> None:
    """Take a snapshot of all files of a directory, and keep it as a checkpoint.

    What ignore files name, directories that programs make and can make again (such as node_modules beside package.json),
    and the directory's own .git are left out; how much that is, is said. Where there is no store yet, one is made in
    .holdfast/ here.
    """
    from holdfast.cli.progress import counter
    from holdfast.cli.store_location import open_or_make_store
    from holdfast.cli.workspace_option import chosen_directory, open_workspace, refuse_what_is_no_workspace

    refuse_what_is_no_workspace(chosen_directory(directory))
    with open_or_make_store(store) as client, counter("files") as counted:
        workspace = open_workspace(client, directory)
        report = workspace.snapshot(message, session_id=session, deep=deep, progress=counted)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(_fields(report))
    else:
        _print(report)
    if report.snapshot.not_taken is not None:
        raise SystemExit(1)


def _print(report: SnapshotReport) -> None:
    from holdfast.cli.printable import byte_count
    from holdfast.cli.workspaces import counted, shown_path

    snapshot = report.snapshot
    if snapshot.not_taken is not None:
        click.echo(f"holdfast: {snapshot.not_taken.reason}", err=True)
        return
    click.echo(report.checkpoint_id)
    click.echo(
        f"{counted(snapshot.files, 'file')}, {byte_count(snapshot.size)}; {report.changed} changed since the last snapshot",
        err=True,
    )
    if snapshot.excluded_count:
        first = ", ".join(shown_path(one.path) for one in snapshot.excluded[:3])
        more = ", …" if snapshot.excluded_count > 3 else ""
        click.echo(f"left out by rules: {snapshot.excluded_count} ({first}{more}); `--json` says by which", err=True)
    for one in snapshot.skipped[:10]:
        click.echo(f"skipped: {shown_path(one.path)}: {one.reason}", err=True)
    if len(snapshot.skipped) > 10:
        click.echo(f"skipped: {len(snapshot.skipped) - 10} more; `--json` lists them", err=True)
    for note in snapshot.notes:
        click.echo(f"note: {note}", err=True)


def _fields(report: SnapshotReport) -> dict[str, Any]:
    from holdfast.cli.workspaces import snapshot_fields

    return {
        "checkpoint_id": report.checkpoint_id,
        "session_id": report.session_id,
        "changed": report.changed,
        **snapshot_fields(report.snapshot),
    }
