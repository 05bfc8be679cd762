"""`holdfast claim`: takes a handoff for a script."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.claims import SyncClaim

DEFAULT_SECONDS = 300


@click.command(short_help="Claim a handoff: exactly one gets it.")
@click.argument("ref")
@click.option("--agent", metavar="A", required=True, help="The agent that it is addressed to.")
@click.option(
    "--seconds", metavar="N", type=float, default=DEFAULT_SECONDS, show_default=True,
    help="How long it is held; nothing renews it.",
)  # fmt: skip
@click.option("--wait", metavar="N", type=float, default=0.0, help="Wait up to N seconds if somebody has it.")
@click.option("--holder", metavar="NAME", help="Who holds it, for others to see.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the state there; - is stdout.",
)
@store_option
@json_option
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

    Nobody else can claim it, nor write to its session, for --seconds. A script then hands it on (holdfast handoff REF
    AGENT --token T) or gives it back (holdfast release REF --token T); otherwise it can be claimed again when the time is
    over. Exits with 4 if somebody has it, or went on from it.
    """
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.store_location import open_store
    from holdfast.model.lease import Process

    with open_store(store) as client:
        # The claim is the script's. This process ends now, which must not end the claim: only time does.
        client._services.this_process = lambda: Process("", os.getpid(), 0)
        made = client.claim(id_of_ref(client, ref), agent, seconds=seconds, wait=wait, holder=holder)
        try:
            _give(made, output, as_json=as_json)
        except BaseException:
            made.release()
            raise


def _give(made: SyncClaim, output: Path | None, *, as_json: bool) -> None:
    from holdfast.cli.json_output import print_json, shown
    from holdfast.errors import UsageError

    state = shown(made.checkpoint.execution_state)
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
    _say(made)


def _fields(made: SyncClaim) -> dict[str, Any]:
    from holdfast.cli.json_output import checkpoint_fields, moment, shown

    return {
        "handoff_id": made.handoff_id,
        "session_id": made.lease.session_id,
        "claim_id": made.claim_id,
        "token": made.lease.token,
        "holder": made.lease.holder,
        "expires_at": moment(made.lease.expires_at),
        "moved_from": made.moved_from,
        "checkpoint": {
            **checkpoint_fields(made.checkpoint),
            "execution_state": shown(made.checkpoint.execution_state),
            "agent_context": shown(made.checkpoint.agent_context),
        },
    }


def _say(made: SyncClaim) -> None:
    from holdfast.model.ids import short

    ref, token = made.checkpoint.short_id, made.lease.token
    click.echo(f"claimed {ref} until {made.lease.expires_at:%Y-%m-%d %H:%M:%S} UTC, token {token}", err=True)
    if made.moved_from is not None:
        click.echo(f"the session stood at {short(made.moved_from)}, which stays as a branch", err=True)
    click.echo(f"to hand it on:    holdfast handoff {ref} AGENT --token {token}", err=True)
    click.echo(f"to give it back:  holdfast release {ref} --token {token}", err=True)
