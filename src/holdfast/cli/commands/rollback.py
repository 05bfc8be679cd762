"""`holdfast rollback`: move a session back to an earlier checkpoint, on request with its files."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.options import common_options, confirm, overwrite_options, plan_option, strict_options, yes_option
from holdfast.cli.options_workspace import directory_option, open_workspace
from holdfast.cli.output.json import print_json
from holdfast.cli.output.left_behind import print_left_behind, rephrase_refusal, resolve_acknowledged
from holdfast.cli.output.operation import print_how_to_undo
from holdfast.cli.output.restore import format_summary, print_dry_run, print_report
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import format_identifier
from holdfast.json_form.operation import rollback_fields
from holdfast.model.reports import RollbackReport


@click.command(short_help="Move a session to another checkpoint of its tree.")
@click.argument("session")
@click.argument("ref")
@click.option("--files", is_flag=True, help="Restore the files, too: both or neither.")
@strict_options
@overwrite_options(" the last snapshot")
@plan_option
@yes_option
@directory_option
@common_options
def rollback(
    session: str, ref: str, files: bool, strict: bool, acknowledge: tuple[str, ...], keep_user: bool, force: bool,
    dry_run: bool, yes: bool, directory: str | None, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Move SESSION to the checkpoint REF of its tree.

    REF is an id, its last 8 or more digits, a tag, or a position: SESSION@-, SESSION@~3, SESSION@{12}. Nothing is
    removed: later checkpoints stay as a branch, and `holdfast undo` moves back. Effects on the outside world stay
    done, and are listed.
    """
    if not files and (keep_user or force or directory is not None):
        raise click.UsageError("--keep-user, --force and --dir are about files: add --files")
    with open_store(store) as client, rephrase_refusal():
        how: dict[str, Any] = {"acknowledge": resolve_acknowledged(client, acknowledge)}
        if files:
            workspace = open_workspace(client, directory)
            how |= {"workspace": workspace, "keep": "user" if keep_user else None, "force": force}
        to = client.resolve(ref)
        report = client.rollback(session, to, **how, dry_run=True)
        if report.files is not None:
            print_report(report.files)
        print_left_behind(report)
        if strict:
            client.rollback(session, to, **how, strict=True, dry_run=True)  # refused before the user is asked
        if not dry_run:
            refused = report.files is not None and report.files.conflicts and not force  # rollback reports it
            moves = report.from_id != report.to_id or (report.files is not None and report.files.actions)
            if moves and not refused and not confirm(f"{_summary(report)}: continue?", yes=yes):
                return
            report = client.rollback(session, to, **how, strict=strict, expect_head=report.from_id)
        if as_json:
            print_json(rollback_fields(report, dry_run=dry_run))
        else:
            click.echo(_summary(report))
        if dry_run:
            print_dry_run()
        elif moves:
            print_how_to_undo(client, "rollback", session)


def _summary(report: RollbackReport) -> str:
    if report.from_id == report.to_id:
        text = f"session {format_identifier(report.session_id)} is at {report.to_id[-8:]} already"
    else:
        before = "nothing" if report.from_id is None else report.from_id[-8:]
        text = f"session {format_identifier(report.session_id)}: {before} → {report.to_id[-8:]}"
    if report.files is not None and report.files.actions:
        text += f"; files: {format_summary(report.files)}"
    return text
