"""`holdfast adopt`: continue a session with the state and files of its fork."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import common_options, confirm, make_not_found_error, overwrite_options, yes_option
from holdfast.cli.options_workspace import directory_option, open_workspace
from holdfast.cli.output.json import print_json
from holdfast.cli.output.operation import print_how_to_undo
from holdfast.cli.output.restore import format_summary, print_report
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import format_identifier
from holdfast.json_form.operation import report_fields
from holdfast.model.file_restore_report import AdoptReport

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient


@click.command(short_help="Continue a session with the result of its fork.")
@click.argument("session")
@click.argument("place", metavar="[DIR]", required=False, type=click.Path(exists=True, file_okay=False))
@click.option("--into", metavar="SESSION", help="Session that continues.  [default: the one it was forked from]")
@overwrite_options(" the fork")
@yes_option
@directory_option
@common_options
def adopt(
    session: str, place: str | None, into: str | None, keep_user: bool, force: bool, yes: bool, directory: str | None,
    store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Continue a session with the result of its fork.

    SESSION is the fork's session: its state becomes the next checkpoint of the session that it was forked from. With
    DIR, the fork's directory, its files are adopted, too. The former head stays as a branch, and the former files
    are in a safety snapshot: `holdfast undo` restores both.
    """
    with open_store(store) as client:
        head = _head(client, session)
        target = f"session {format_identifier(into)}" if into is not None else "the session that it was forked from"
        files = "" if place is None else f", and the files of {place}"
        click.echo(
            f"  {head[-8:]} of {format_identifier(session)}{files}: becomes the next checkpoint of {target}", err=True
        )
        if not confirm("adopt it?", yes=yes):
            return
        if place is None:
            report = client.adopt(session, into)
        else:
            keep = "user" if keep_user else None
            report = open_workspace(client, directory).adopt(place, session, session_id=into, keep=keep, force=force)
        _print_adopted(client, report, as_json=as_json)


def _head(client: SyncClient, session: str) -> str:
    found = client.session(session)
    if found is None:
        raise make_not_found_error(session)
    return found.head.checkpoint_id


def _print_adopted(client: SyncClient, report: AdoptReport, *, as_json: bool) -> None:
    if as_json:
        fields: dict[str, Any] = {
            "checkpoint_id": report.checkpoint_id,
            "session_id": report.session_id,
            "fork_id": report.fork_id,
            "files": None if report.files is None else report_fields(report.files),
        }
        print_json(fields)
    else:
        if report.files is not None:
            print_report(report.files)
            click.echo(format_summary(report.files))
        click.echo(f"session {format_identifier(report.session_id)} continues at {report.checkpoint_id}")
    print_how_to_undo(client, "adopt", report.session_id)
