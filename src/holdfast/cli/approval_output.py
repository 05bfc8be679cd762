"""Approvals on the command line: how one is named, shown, and decided about."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.json_output import moment, shown
from holdfast.cli.printable import name, printable
from holdfast.errors import CheckpointNotFoundError, UsageError
from holdfast.model import ids
from holdfast.model.ids import SHORT_ID_LENGTH

if TYPE_CHECKING:
    from holdfast.model.approval import Approval
    from holdfast.sync_client import SyncClient


def approval_of_ref(client: SyncClient, ref: str) -> Approval:
    """The approval that is meant: by its id, or by the last eight or more digits of it."""
    digits = ref.replace("-", "").lower()
    found = []
    if ids.is_like_id(ref):
        found = [one for one in client.approvals(pending=False) if one.approval_id.replace("-", "").endswith(digits)]
    if len(found) > 1:
        every = ", ".join(one.approval_id for one in found)
        raise UsageError(f"{ref} is the end of more than one id: {every}. Give more digits, or the whole id")
    if not found:
        raise CheckpointNotFoundError(
            f"there is no approval {printable(ref, 60)!r} here. One is named by its id or by the last {SHORT_ID_LENGTH} or "
            "more digits of it; `holdfast approvals` lists what waits"
        )
    return found[0]


def approval_fields(approval: Approval) -> dict[str, Any]:
    decision = approval.decision
    return {
        "approval_id": approval.approval_id,
        "short_id": approval.short_id,
        "session_id": approval.session_id,
        "status": str(approval.status),
        "gate": str(approval.gate),
        "tool": approval.call.tool,
        "kind": approval.call.kind,
        "arguments": shown(dict(approval.call.arguments)),
        "identity": shown(dict(approval.call.identity)),
        "approvers": approval.approvers,
        "summary": approval.summary,
        "checkpoint_id": approval.checkpoint_id,
        "requested_at": moment(approval.requested_at),
        "expires_at": moment(approval.expires_at),
        "decision": None
        if decision is None
        else {
            "answer": str(decision.answer),
            "by": decision.by,
            "at": moment(decision.at),
            "note": decision.note,
            "arguments": None if decision.arguments is None else shown(dict(decision.arguments)),
        },
        "used_by": approval.used_by,
        "ended_at": moment(approval.ended_at) if approval.ended_at else None,
    }


def call_text(approval: Approval) -> str:
    """The call in one line: pay(to="bob", amount=500)."""
    given = ", ".join(f"{key}={json.dumps(shown(value))}" for key, value in approval.arguments.items())
    return f"{approval.call.tool}({given})"


def show_call(approval: Approval) -> None:
    """The whole call, to people: nothing of it is left out."""
    click.echo(
        f"  {printable(approval.call.tool)}  ({approval.call.kind}, session {name(approval.session_id)})", err=True
    )
    if approval.summary:
        click.echo(f"  {printable(approval.summary)}", err=True)
    for key, value in approval.call.arguments.items():
        click.echo(f"    {printable(key)} = {json.dumps(shown(value))}", err=True)


def say_decided(approval: Approval, *, as_json: bool) -> None:
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(approval_fields(approval))
    else:
        click.echo(f"{approval.status} {approval.approval_id}")
