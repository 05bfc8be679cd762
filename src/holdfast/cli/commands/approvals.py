"""`holdfast approvals`: the effects that wait for a decision."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.json_input import parse_json_option
from holdfast.cli.options import common_options, confirm, find_by_id, make_not_found_error, yes_option
from holdfast.cli.output.listing import Column, print_listing, print_result
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape, format_identifier, format_name, format_utc
from holdfast.json_form.ledger import approval_fields
from holdfast.json_form.values import to_json
from holdfast.model.approval import Approval, Gate

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

Command = TypeVar("Command", bound=Callable[..., Any])


def decision_options(command: Command) -> Command:
    by = click.option("--by", metavar="NAME", help="Name of the decider.  [default: your user name]")
    note = click.option("--note", metavar="TEXT", help="Reason, shown to the agent.")
    return by(note(command))


def get_user_name(given: str | None) -> str:
    import getpass

    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:  # a container without a user of that number
        raise click.UsageError("cannot determine your user name: pass --by NAME") from error


def find_approval(client: SyncClient, ref: str) -> Approval:
    """Return the approval of a reference: its id, or its last digits (8 or more)."""
    return find_by_id(client.approvals(pending=False), lambda approval: approval.approval_id, ref, "approval")


def format_call(approval: Approval) -> str:
    """Return the call in one line: pay(to="bob", amount=500)."""
    given = ", ".join(f"{key}={json.dumps(to_json(value))}" for key, value in approval.arguments.items())
    return f"{approval.call.tool}({given})"


def print_call(approval: Approval) -> None:
    """Print the whole call, for people: nothing is left out."""
    click.echo(
        f"  {escape(approval.call.tool)}  ({approval.call.kind}, session {format_identifier(approval.session_id)})",
        err=True,
    )
    if approval.summary:
        click.echo(f"  {escape(approval.summary)}", err=True)
    for key, value in approval.call.arguments.items():
        click.echo(f"    {escape(key)} = {json.dumps(to_json(value))}", err=True)


def print_decided(approval: Approval, *, as_json: bool) -> None:
    print_result(approval_fields(approval), f"{approval.status} {approval.approval_id}", as_json=as_json)


COLUMNS: tuple[Column[Approval], ...] = (
    Column("id", lambda approval: approval.short_id),
    Column("session", lambda approval: format_identifier(approval.session_id), "whole"),
    Column("call", lambda approval: escape(format_call(approval), 60), "shrinks"),
    Column("for", lambda approval: format_identifier(approval.approvers), "whole"),
    Column("expires (UTC)", lambda approval: format_utc(approval.expires_at)),
    Column("status", lambda approval: str(approval.status)),
    Column("by", lambda approval: format_name(approval.decision.by if approval.decision else None), "shrinks"),
)


@click.command(short_help="Approve a call: it may be carried out once.")
@click.argument("approval_id", metavar="ID")
@click.option("--modify", metavar="JSON", help="Replace these arguments; others stay.")
@decision_options
@yes_option
@common_options
def approve(
    approval_id: str, modify: str | None, by: str | None, note: str | None, yes: bool, store: str | None, as_json: bool
) -> None:
    """Approve the pending call ID: it may be carried out once, with exactly the arguments shown.

    ID is an id from `holdfast approvals`, or its last 8 or more digits. A call that needs explicit approval is
    shown in full, followed by a question; scripts pass --yes. Exits with 4 if it is already decided.
    """
    changes = None if modify is None else _changes(modify)
    with open_store(store) as client:
        found = find_approval(client, approval_id)
        print_call(found)
        arguments: dict[str, Any] | None = None
        if changes is not None:
            _check_names(changes, found.call.arguments)
            arguments = {**found.call.arguments, **changes}
            click.echo(f"  with {json.dumps(changes)}", err=True)
        is_asked = found.is_pending and found.gate is Gate.APPROVE
        if is_asked and not confirm("approve this?", yes=yes):
            return
        answer = "approve" if arguments is None else "modify"
        decided = client.decide(found.approval_id, answer, by=get_user_name(by), note=note, arguments=arguments)
    print_decided(decided, as_json=as_json)


def _check_names(changes: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Refuse a mistyped name: a decision is final."""
    for argument in changes:
        if argument not in arguments:
            has = ", ".join(map(repr, arguments)) or "none"
            raise click.BadParameter(f"the call has no argument {argument!r:.60}: it has {has}", param_hint="--modify")


def _changes(text: str) -> dict[str, Any]:
    given = parse_json_option(text, "--modify")
    if not isinstance(given, dict):
        raise click.BadParameter('it must be an object of arguments, such as {"amount": 50}', param_hint="--modify")
    return given


@click.command(short_help="Reject a call: it is not carried out.")
@click.argument("approval_id", metavar="ID")
@decision_options
@common_options
def reject(approval_id: str, by: str | None, note: str | None, store: str | None, as_json: bool) -> None:
    """Reject the pending call ID: it is not carried out. The agent gets --note as the reason.

    ID is an id from `holdfast approvals`, or its last 8 or more digits. Exits with 4 if it is already decided.
    """
    with open_store(store) as client:
        found = find_approval(client, approval_id)
        print_call(found)
        decided = client.decide(found.approval_id, "reject", by=get_user_name(by), note=note)
    print_decided(decided, as_json=as_json)


@click.command(short_help="List calls that wait for approval.")
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="Include decided, used and expired ones.")
@common_options
def approvals(session: str | None, everything: bool, store: str | None, as_json: bool) -> None:
    """List calls that wait for approval, of all sessions or of SESSION, oldest first.

    `holdfast approve ID` and `holdfast reject ID` decide. --all adds approved, modified, rejected, used, expired
    and void ones.
    """
    with open_store(store) as client:
        found = client.approvals(session, pending=not everything)
        # A session without saves may have requests already.
        is_known = found or session is None or client.session(session) or client.approvals(session, pending=False)
        if session is not None and not is_known:
            raise make_not_found_error(session)
    nothing = "nothing was ever asked for" if everything else "nothing waits for approval"
    print_listing("approvals", found, approval_fields, COLUMNS, nothing=nothing, as_json=as_json)
