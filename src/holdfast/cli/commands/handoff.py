"""`holdfast handoff`: address a checkpoint to an agent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import common_options, make_lease_terms, token_option
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import Column, print_listing
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import format_identifier, format_name, format_utc
from holdfast.errors import LeaseLostError, UsageError
from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.json_form.team import handoff_fields
from holdfast.json_form.values import format_time, to_json
from holdfast.model.handoff import Handoff
from holdfast.model.ids import short
from holdfast.model.lease import Process

if TYPE_CHECKING:
    from holdfast.coordination.claim import SyncClaim

DEFAULT_SECONDS = 300


@click.command(short_help="Claim a handoff, exclusively.")
@click.argument("ref")
@click.option("--agent", metavar="A", required=True, help="Agent that the handoff is addressed to.")
@click.option(
    "--seconds", metavar="N", type=float, default=DEFAULT_SECONDS, show_default=True,
    help="Duration of the claim; it is not renewed.",
)  # fmt: skip
@click.option("--wait", metavar="N", type=float, default=0.0, help="Wait up to N seconds for another holder.")
@click.option("--holder", metavar="NAME", help="Name of the holder, shown to others.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the state; - for stdout.",
)
@common_options
def claim(
    ref: str,
    agent: str,
    seconds: float,
    wait: float,
    holder: str | None,
    output: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Claim the handoff REF, and print its execution_state as JSON.

    For --seconds, no other process can claim it or write to its session. Then hand it on (holdfast handoff REF
    AGENT --token T) or release it (holdfast release REF --token T); otherwise the claim times out. Exits with 4 if
    it is claimed or taken up.
    """
    with open_store(store) as client:
        # The claim is the script's. This process ends now, which must not end the claim: only time
        # does.
        client._ctx.this_process = lambda: Process("", os.getpid(), 0)
        made = client.claim(client.resolve(ref), agent, seconds=seconds, wait=wait, holder=holder)
        try:
            _print_state(made, output, as_json=as_json)
        except BaseException:
            made.release()
            raise


def _print_state(made: SyncClaim, output: Path | None, *, as_json: bool) -> None:
    state = to_json(made.checkpoint.execution_state)
    to_file = output is not None and str(output) != "-"
    if output is not None and to_file:
        try:
            output.write_text(json.dumps(state, indent=2, allow_nan=False) + "\n", "ascii")
        except OSError as error:
            raise UsageError(f"{output} can't be written: {error.strerror}. The handoff was given back") from error
    if as_json:
        print_json(_fields(made))
    elif not to_file:
        print_json(state)
    _print_claim(made)


def _fields(made: SyncClaim) -> dict[str, Any]:
    return {
        "handoff_id": made.handoff_id,
        "session_id": made.lease.session_id,
        "claim_id": made.claim_id,
        "token": made.lease.token,
        "holder": made.lease.holder,
        "expires_at": format_time(made.lease.expires_at),
        "moved_from": made.moved_from,
        "checkpoint": {
            **checkpoint_fields(made.checkpoint),
            "execution_state": to_json(made.checkpoint.execution_state),
            "agent_context": to_json(made.checkpoint.agent_context),
        },
    }


def _print_claim(made: SyncClaim) -> None:
    ref, token = made.checkpoint.short_id, made.lease.token
    click.echo(f"claimed {ref} until {format_utc(made.lease.expires_at)} UTC, token {token}", err=True)
    if made.moved_from is not None:
        click.echo(f"the session stood at {short(made.moved_from)}, which stays as a branch", err=True)
    click.echo(f"to hand it on:    holdfast handoff {ref} AGENT --token {token}", err=True)
    click.echo(f"to give it back:  holdfast release {ref} --token {token}", err=True)


COLUMNS: tuple[Column[Handoff], ...] = (
    Column("handoff", lambda item: item.checkpoint.short_id),
    Column("from", lambda item: format_identifier(item.from_agent_id), "whole"),
    Column("session", lambda item: format_identifier(item.session_id), "whole"),
    Column("schema", lambda item: format_name(item.schema), "shrinks"),
    Column("offered (UTC)", lambda item: format_utc(item.offered_at)),
    Column("status", lambda item: str(item.status)),
    Column("by", lambda item: format_name(item.by), "shrinks"),
)


@click.command(short_help="List the handoffs to an agent, oldest first.")
@click.argument("agent")
@click.option("--all", "include_claimed", is_flag=True, help="Include claimed, taken up and passed on ones.")
@common_options
def inbox(agent: str, include_claimed: bool, store: str | None, as_json: bool) -> None:
    """List the claimable handoffs to AGENT, oldest first.

    STATUS is "open", or "timed out" after an expired claim. --all adds "claimed", "taken up" (an agent continued
    from it) and "passed on" (handed to another agent); BY names the agent.
    """
    with open_store(store) as client:
        found = client.inbox(agent, include_claimed=include_claimed)
    nothing = f"nothing waits for agent {agent!r:.60}"
    print_listing("handoffs", found, handoff_fields, COLUMNS, nothing=nothing, as_json=as_json, agent_id=agent)


@click.command(short_help="Release a claimed handoff.")
@click.argument("ref")
@token_option(required=True)
@common_options
def release(ref: str, token: int, store: str | None, as_json: bool) -> None:
    """Release the handoff REF: others can claim it and write to its session.

    Exits with 4 if the claim has ended.
    """
    from holdfast.coordination.lease import SyncLease

    with open_store(store) as client:
        checkpoint = client.get(client.resolve(ref))
        held = SyncLease(client._ctx, checkpoint.session_id, "", 0.0, token, 0)
        if not held.release():
            raise LeaseLostError(
                f"the claim of token {token} was over already: it ran out, was released, or was taken over. "
                "`holdfast inbox AGENT --all` says who has the handoff"
            )
    if as_json:
        print_json({"session_id": checkpoint.session_id, "released": True})
    else:
        click.echo(f"released {checkpoint.short_id}", err=True)


@click.command(short_help="Hand a checkpoint to another agent.")
@click.argument("ref")
@click.argument("agent")
@click.option("--schema", metavar="S", help="Contract that the state follows.")
@token_option()
@common_options
def handoff(ref: str, agent: str, schema: str | None, token: int | None, store: str | None, as_json: bool) -> None:
    """Hand the checkpoint REF to AGENT, and print the id of the handoff.

    The handoff becomes the head of its session. Handing on a handoff ends it for its first target. While a session
    is claimed or leased, only the holder may do this: pass --token.
    """
    with open_store(store) as client:
        source = client.get(client.resolve(ref))
        lease = make_lease_terms(source.session_id, token)
        made = client.get(client.handoff(source.checkpoint_id, agent, schema, lease=lease))
    if as_json:
        print_json({"handoff_id": made.checkpoint_id, "checkpoint": checkpoint_fields(made)})
        return
    click.echo(made.checkpoint_id)
    click.echo(
        f"{made.short_id} waits for {format_identifier(agent)}, until it is claimed: holdfast claim "
        f"{made.short_id} --agent ...\n"
        f"to take it back: holdfast expire {made.short_id}",
        err=True,
    )
