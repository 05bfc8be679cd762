"""A timeline that goes on: what is there, and then each checkpoint as it is saved, by whichever process."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.printable import name
from holdfast.cli.tables import GAP

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.listing import Session
    from holdfast.sync_client import SyncClient

LOOKS_EVERY = 0.25  # seconds
FROM_THE_TOP = "\x1b[H\x1b[2J"  # what a terminal takes for: begin again on an empty screen
ROOM_FOR_WORDS = 2  # lines


def follow(client: SyncClient, session_id: str, agent: str | None, limit: int | None, *, as_json: bool) -> None:
    """Prints a line for each checkpoint of the session, oldest first, and goes on."""
    cursor = client.cursor()  # before what is there is read: nothing falls in between
    there = client.timeline(agent_id=agent, session_id=session_id, limit=limit)[::-1]
    before: Checkpoint | None = None
    for entry in there:
        _print(entry, before, as_json=as_json)
        before = entry
    known = {entry.checkpoint_id for entry in there}
    if not as_json:
        click.echo(f"watching {name(session_id)}; Ctrl-C ends it", err=True)
    for event in client.events(session_id=session_id, agent_id=agent, after=cursor, poll_seconds=LOOKS_EVERY):
        if event.checkpoint.checkpoint_id not in known:
            _print(event.checkpoint, before, as_json=as_json)
            before = event.checkpoint


def _print(entry: Checkpoint, before: Checkpoint | None, *, as_json: bool) -> None:
    if as_json:
        from holdfast.cli.json_output import checkpoint_fields

        line = json.dumps(checkpoint_fields(entry), allow_nan=False)
    else:
        from holdfast.cli.cmd_timeline import note

        step = "" if entry.step_index is None else str(entry.step_index)
        cells = (
            f"{step:>4}",
            f"{name(entry.step_name):<20}",
            entry.short_id,
            f"{name(entry.agent_id):<12}",
            f"{entry.created_at:%Y-%m-%d %H:%M:%S}",
            note(entry, before.checkpoint_id if before else None, head=""),
        )
        line = GAP.join(cells).rstrip()
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # whoever reads along must not wait for a buffer to fill


def follow_graph(client: SyncClient, chosen: Session, limit: int | None) -> None:
    """Draws the tree of the session, and draws it anew whenever something is saved to it."""
    from holdfast.cli import graph

    cursor = client.cursor()
    on_terminal = sys.stdout.isatty()

    def draw() -> None:
        most = limit
        if on_terminal:
            room = max(shutil.get_terminal_size().lines - ROOM_FOR_WORDS, 1)
            most = room if limit is None else min(limit, room)
        lines = graph.lines(client.tree(chosen.session_id), most)
        sys.stdout.write("".join((FROM_THE_TOP if on_terminal else "", *(f"{line}\n" for line in lines))))
        if not on_terminal:
            sys.stdout.write("\n")
        sys.stdout.flush()

    draw()
    click.echo(f"watching the tree of {name(chosen.session_id)}; Ctrl-C ends it", err=True)
    for event in client.events(after=cursor, poll_seconds=LOOKS_EVERY):
        if event.checkpoint.tree_id == chosen.tree_id:
            draw()
