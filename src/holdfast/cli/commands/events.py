"""`holdfast events`: a live stream of saves."""

from __future__ import annotations

import json
import sys

import click

from holdfast.cli.options import common_options
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import format_identifier, format_name, format_number, format_utc
from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.model.event import Event


@click.command(short_help="Follow new checkpoints, handoffs and messages.")
@click.option("--session", metavar="S", help="Print only this session.")
@click.option("--agent", metavar="A", help="Print only checkpoints that this agent saved or was handed.")
@click.option(
    "--after", metavar="CURSOR", help="Start after this cursor; `start` for all events.  [default: new events]"
)
@click.option("--follow/--no-follow", default=True, help="Wait for more, or stop at the end.  [default: follow]")
@common_options
def events(
    session: str | None, agent: str | None, after: str | None, follow: bool, store: str | None, as_json: bool
) -> None:
    """Print each new checkpoint, handoff and message, from any process, one per line.

    Each line starts with its cursor: `--after CURSOR` prints the events after it, each once, in order. With
    `--json`, each line is a JSON object. Stop with Ctrl-C.
    """
    with open_store(store) as client:
        for event in client.events(session_id=session, agent_id=agent, after=after, follow=follow):
            sys.stdout.write(_json_line(event) if as_json else _line(event))
            sys.stdout.flush()  # a live reader must not wait for a full buffer


def _json_line(event: Event) -> str:
    fields = {
        "cursor": event.cursor,
        "kind": event.kind,
        "topic": event.topic,
        "checkpoint": checkpoint_fields(event.checkpoint),
    }
    return json.dumps(fields, allow_nan=False) + "\n"


def _line(event: Event) -> str:
    checkpoint = event.checkpoint
    step = format_number(checkpoint.step_index)
    words = [
        event.cursor,
        format_utc(checkpoint.created_at),
        checkpoint.short_id,
        format_identifier(checkpoint.session_id),
        format_identifier(checkpoint.agent_id),
        f"step {step} {format_name(checkpoint.step_name)}".rstrip(),
    ]
    if checkpoint.handoff_target is not None:
        words.append(f"for {format_identifier(checkpoint.handoff_target)}")
    if event.topic is not None:
        words.append(f"message to {format_identifier(event.topic)}")
    return "  ".join(words) + "\n"
