"""`holdfast rollback`: a session goes back to an earlier checkpoint, with its files if that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.confirmation import confirmed, yes_option
from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option

if TYPE_CHECKING:
    from holdfast.model.reports import RollbackReport


@click.command(short_help="Move a session to another checkpoint of its tree.")
@click.argument("session")
@click.argument("ref")
@click.option("--files", is_flag=True, help="The files of the directory go back, too: both or neither.")
@click.option(
    "--strict", is_flag=True, help="Refuse if effects stay done, or other agents went on, unless acknowledged."
)
@click.option("--acknowledge", metavar="ID", multiple=True, help="An effect or handoff that may stay. Can be repeated.")
@click.option("--keep-user", is_flag=True, help="Leave files that have changed since the last snapshot as they are.")
@click.option("--force", is_flag=True, help="Overwrite also files that have changed since the last snapshot.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@yes_option
@directory_option
@store_option
@json_option
def rollback(
    session: str, ref: str, files: bool, strict: bool, acknowledge: tuple[str, ...], keep_user: bool, force: bool,
    dry_run: bool, yes: bool, directory: str | None, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Move SESSION to the checkpoint REF of its tree. Nothing is removed: what came after stays as a branch, and
    `holdfast undo` goes back there.

    REF is an id, the last 8 or more digits of one, a tag, or a place such as SESSION@-, SESSION@~3 or SESSION@{12}. What was
    done to the outside world stays done, and is listed.
    """
    from holdfast.cli.left_behind import acknowledged, refused_in_options, say_left_behind
    from holdfast.cli.operation_output import say_how_to_undo
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.restore_output import say_report
    from holdfast.cli.store_location import open_store
    from holdfast.cli.workspace_option import open_workspace

    if not files and (keep_user or force or directory is not None):
        raise click.UsageError("--keep-user, --force and --dir are about files: add --files")
    with open_store(store) as client, refused_in_options():
        how: dict[str, Any] = {"acknowledge": acknowledged(client, acknowledge)}
        if files:
            workspace = open_workspace(client, directory)
            how |= {"workspace": workspace, "keep": "user" if keep_user else None, "force": force}
        to = id_of_ref(client, ref)
        report = client.rollback(session, to, **how, dry_run=True)
        if report.files is not None:
            say_report(report.files)
        say_left_behind(report)
        if strict:
            client.rollback(session, to, **how, strict=True, dry_run=True)  # refused before anybody is asked
        if not dry_run:
            refused = report.files is not None and report.files.conflicts and not force  # said by the rollback itself
            moves = report.from_id != report.to_id or (report.files is not None and report.files.actions)
            if moves and not refused and not confirmed(f"{_summary(report)}: go on?", yes=yes):
                return
            report = client.rollback(session, to, **how, strict=strict, expect_head=report.from_id)
        if as_json:
            _print_json(report, dry_run=dry_run)
        else:
            click.echo(_summary(report))
        if not dry_run and moves:
            say_how_to_undo(client, "rollback", session)


def _summary(report: RollbackReport) -> str:
    from holdfast.cli.printable import name
    from holdfast.cli.restore_output import summary

    if report.from_id == report.to_id:
        said = f"session {name(report.session_id)} stands at {report.to_id[-8:]} already"
    else:
        before = "nothing" if report.from_id is None else report.from_id[-8:]
        said = f"session {name(report.session_id)}: {before} → {report.to_id[-8:]}"
    if report.files is not None and report.files.actions:
        said += f"; files: {summary(report.files)}"
    return said


def _print_json(report: RollbackReport, *, dry_run: bool) -> None:
    from holdfast.cli.json_output import print_json
    from holdfast.cli.restore_output import report_fields

    print_json(
        {
            "dry_run": dry_run,
            "session_id": report.session_id,
            "from_id": report.from_id,
            "to_id": report.to_id,
            "effects": [one.effect_id for one in report.effects],
            "unknown": [one.effect_id for one in report.unknown],
            "undos": [one.effect_id for one in report.undos],
            "consumers": [one.handoff_id for one in report.consumers],
            "approvals_voided": [one.approval_id for one in report.approvals_voided],
            "files": None if report.files is None else report_fields(report.files),
        }
    )
