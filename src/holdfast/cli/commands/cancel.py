"""`holdfast cancel`: end a session, and the work that it delegated."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.options import common_options, confirm, yes_option
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape, format_identifier, format_name
from holdfast.json_form.ledger import effect_fields
from holdfast.model.cancellation import CancelledSession, CancelReport


@click.command(short_help="Cancel a session and the work it delegated.")
@click.argument("session")
@click.option("--reason", metavar="TEXT", default="", help="Reason, shown to those who are refused.")
@click.option("--by", metavar="NAME", help="Name of the decider.  [default: this process]")
@click.option("--dry-run", is_flag=True, help="Only report what would be cancelled.")
@yes_option
@common_options
def cancel(
    session: str, reason: str, by: str | None, dry_run: bool, yes: bool, store: str | None, as_json: bool
) -> None:
    """Cancel SESSION and all work that it delegated: their workers can't save any more.

    A call that is under way is not stopped. Effects that were carried out stay; they are listed. A cancelled session
    can't be resumed; `holdfast fork` continues from its checkpoint.
    """
    with open_store(store) as client:
        plan = client.cancel(session, by=by, reason=reason, dry_run=True)
        if not dry_run:
            _print_sessions(plan, err=True)
            if not confirm(f"cancel {len(plan.sessions)} sessions?", yes=yes):
                return
            plan = client.cancel(session, by=by, reason=reason)
    if as_json:
        print_json(report_fields(plan))
    elif dry_run:
        _print_sessions(plan, err=False)
        click.echo("nothing was cancelled: leave out --dry-run to do it", err=True)
    else:
        _print_world(plan)
        click.echo(f"cancelled {format_identifier(session)}; to go on: holdfast fork {format_identifier(session)}")


def report_fields(report: CancelReport) -> dict[str, Any]:
    return {
        "session_id": report.session_id,
        "by": report.by,
        "reason": report.reason,
        "dry_run": report.dry_run,
        "sessions": [_fields(session) for session in report.sessions],
    }


def _fields(session: CancelledSession) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "parent_id": session.parent_id,
        "depth": session.depth,
        "agent_id": session.agent_id,
        "status": session.status,
        "holder": session.holder,
        "effects": [effect_fields(effect) for effect in session.effects],
        "unknown": [effect_fields(effect) for effect in session.unknown],
        "undos": [effect.effect_id for effect in session.undos],
        "approvals_voided": session.approvals_voided,
    }


def _print_sessions(report: CancelReport, *, err: bool) -> None:
    for session in report.sessions:
        holder = f" by {format_name(session.holder)}" if session.holder else ""
        agent = f"  ({format_name(session.agent_id)})" if session.agent_id else ""
        click.echo(
            f"{'  ' * session.depth}{format_identifier(session.session_id)}  {session.status}{holder}{agent}", err=err
        )


def _print_world(report: CancelReport) -> None:
    for effect in report.effects:
        undo = ", which has an undo" if effect.undoable else ""
        click.echo(f"stays done: {escape(effect.tool, 60)} ({effect.short_id}){undo}", err=True)
    for effect in report.unknown:
        click.echo(f"in doubt: {escape(effect.tool, 60)} ({effect.short_id}): holdfast resolve", err=True)
