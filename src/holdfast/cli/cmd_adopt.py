"""`holdfast adopt`: what a fork came to goes on as the session that it was forked from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.confirmation import confirmed, yes_option
from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option

if TYPE_CHECKING:
    from holdfast.model.restore_report import AdoptReport
    from holdfast.sync_client import SyncClient


@click.command(short_help="Go on with what a fork came to.")
@click.argument("session")
@click.argument("place", metavar="[DIR]", required=False, type=click.Path(exists=True, file_okay=False))
@click.option(
    "--into", metavar="SESSION", help="The session that goes on with it. Without it: the one that it was forked from."
)
@click.option("--keep-user", is_flag=True, help="Leave files that have changed since the fork was made as they are.")
@click.option("--force", is_flag=True, help="Overwrite also files that have changed since the fork was made.")
@yes_option
@directory_option
@store_option
@json_option
def adopt(
    session: str, place: str | None, into: str | None, keep_user: bool, force: bool, yes: bool, directory: str | None,
    store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Go on with what a fork came to: its state becomes the next checkpoint of the session that it was forked from.

    SESSION is that of the fork. With DIR, where the fork has its files, these are brought back, too. Where the session stood
    before stays as a branch, and what the files were is in a safety snapshot: `holdfast undo` goes back to both.
    """
    from holdfast.cli.printable import name
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        head = _head(client, session)
        target = f"session {name(into)}" if into is not None else "the session that it was forked from"
        files = "" if place is None else f", and the files of {place}"
        click.echo(f"  {head[-8:]} of {name(session)}{files}: goes on as {target}", err=True)
        if not confirmed("adopt it?", yes=yes):
            return
        if place is None:
            report = client.adopt(session, into)
        else:
            from holdfast.cli.workspace_option import open_workspace

            keep = "user" if keep_user else None
            report = open_workspace(client, directory).adopt(place, session, session_id=into, keep=keep, force=force)
        _say(client, report, as_json=as_json)


def _head(client: SyncClient, session: str) -> str:
    from holdfast.errors import CheckpointNotFoundError

    found = client.session(session)
    if found is None:
        raise CheckpointNotFoundError(
            f"there is no session {session!r:.60} here. `holdfast sessions` lists those that are"
        )
    return found.head.checkpoint_id


def _say(client: SyncClient, report: AdoptReport, *, as_json: bool) -> None:
    from holdfast.cli.operation_output import say_how_to_undo
    from holdfast.cli.restore_output import report_fields, say_report, summary

    if as_json:
        from holdfast.cli.json_output import print_json

        fields: dict[str, Any] = {
            "checkpoint_id": report.checkpoint_id,
            "session_id": report.session_id,
            "fork_id": report.fork_id,
            "files": None if report.files is None else report_fields(report.files),
        }
        print_json(fields)
    else:
        from holdfast.cli.printable import name

        if report.files is not None:
            say_report(report.files)
            click.echo(summary(report.files))
        click.echo(f"session {name(report.session_id)} goes on at {report.checkpoint_id}")
    say_how_to_undo(client, "adopt", report.session_id)
