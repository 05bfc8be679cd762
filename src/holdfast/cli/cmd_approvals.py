"""`holdfast approvals`: what waits for somebody to decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.approval import Approval
    from holdfast.sync_client import SyncClient


@click.command(short_help="List what waits for somebody's approval.")
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="Also what was decided, was used, or has expired.")
@store_option
@json_option
def approvals(session: str | None, everything: bool, store: str | None, as_json: bool) -> None:
    """List the calls that wait for approval, of all sessions or of SESSION, the oldest first.

    `holdfast approve ID` and `holdfast reject ID` decide. With --all also what was approved, modified, rejected, used, has
    expired, or is void because its session was rolled back.
    """
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        found = client.approvals(session, pending=not everything)
        if session is not None and not found and client.session(session) is None:
            _refuse_unknown(client, session)
    if as_json:
        from holdfast.cli.approval_output import approval_fields
        from holdfast.cli.json_output import print_json

        print_json({"approvals": [approval_fields(approval) for approval in found]})
    elif found:
        _print(found)
    else:
        click.echo("nothing waits for approval" if not everything else "nothing was ever asked for", err=True)


def _refuse_unknown(client: SyncClient, session: str) -> None:
    """A session may be asked for before anything is saved to it; one that nobody has heard of is a mistake."""
    from holdfast.cli.printable import printable
    from holdfast.errors import CheckpointNotFoundError

    if not client.approvals(session, pending=False):
        raise CheckpointNotFoundError(
            f"there is no session {printable(session, 60)!r} here. `holdfast sessions` lists what is there"
        )


def _print(found: list[Approval]) -> None:
    from holdfast.cli.approval_output import call_text
    from holdfast.cli.printable import name, printable
    from holdfast.cli.tables import print_table

    print_table(
        ("id", "session", "call", "for", "expires (UTC)", "status", "by"),
        [
            (
                approval.short_id,
                name(approval.session_id),
                printable(call_text(approval), 60),
                name(approval.approvers),
                f"{approval.expires_at:%Y-%m-%d %H:%M:%S}",
                str(approval.status),
                name(approval.decision.by if approval.decision else None),
            )
            for approval in found
        ],
        shrinks=("session", "call", "for", "by"),
    )
