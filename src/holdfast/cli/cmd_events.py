"""`holdfast events`: what is saved, as it comes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.event import Event


@click.command(short_help="Follow what is saved, as it comes.")
@click.option("--session", metavar="S", help="Only of this session.")
@click.option("--agent", metavar="A", help="Only what this agent made or was handed.")
@click.option(
    "--after", metavar="CURSOR", help="Go on after this cursor; `start` for everything.  [default: from now on]"
)
@click.option("--follow/--no-follow", default=True, help="Wait for more, or end when there is none.  [default: follow]")
@store_option
@json_option
def events(
    session: str | None, agent: str | None, after: str | None, follow: bool, store: str | None, as_json: bool
) -> None:
    """Print each checkpoint and each handoff as it is saved, by whichever process, one to a line.

    Each line begins with its cursor: given to `--after`, what came after it is printed, each once, in order. With
    `--json`, each line is a JSON object. Ctrl-C ends it.
    """
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        for event in client.events(session_id=session, agent_id=agent, after=after, follow=follow):
            sys.stdout.write(_json_line(event) if as_json else _line(event))
            sys.stdout.flush()  # whoever reads along must not wait for a buffer to fill


def _json_line(event: Event) -> str:
    import json

    from holdfast.cli.json_output import checkpoint_fields

    fields = {"cursor": event.cursor, "kind": event.kind, "checkpoint": checkpoint_fields(event.checkpoint)}
    return json.dumps(fields, allow_nan=False) + "\n"


def _line(event: Event) -> str:
    from holdfast.cli.printable import name

    checkpoint = event.checkpoint
    step = "" if checkpoint.step_index is None else str(checkpoint.step_index)
    words = [
        event.cursor,
        f"{checkpoint.created_at:%Y-%m-%d %H:%M:%S}",
        checkpoint.short_id,
        name(checkpoint.session_id),
        name(checkpoint.agent_id),
        f"step {step} {name(checkpoint.step_name)}".rstrip(),
    ]
    if checkpoint.handoff_target is not None:
        words.append(f"for {name(checkpoint.handoff_target)}")
    return "  ".join(words) + "\n"
