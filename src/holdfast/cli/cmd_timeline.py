"""`holdfast timeline`: what happened in a session, newest first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.listing import Session
    from holdfast.sync_client import SyncClient

DEFAULT_COUNT = 20


@click.command(short_help="Show the checkpoints of a session, newest first.")
@click.argument("session", required=False)
@click.option("--agent", metavar="A", help="Only checkpoints that this agent made or was handed.")
@click.option(
    "-n", "count", metavar="N", type=click.IntRange(min=0), help="The newest N; 0 for all.  [default: 20, graph: all]"
)
@click.option("--graph", is_flag=True, help="Draw the whole tree, with the session's forks; heads are marked.")
@click.option("--watch", is_flag=True, help="Oldest first, and go on as more is saved, until Ctrl-C.")
@store_option
@json_option
def timeline(
    session: str | None,
    agent: str | None,
    count: int | None,
    graph: bool,
    watch: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Show the checkpoints of SESSION, newest first; without SESSION, of the one saved to last.

    A row that is marked "after ID" follows another checkpoint than the one below it: the session was rolled back, or
    went on from an older checkpoint. With --watch and --json, each line is a JSON object.
    """
    from holdfast.cli.pager import paged
    from holdfast.cli.store_location import open_store

    if graph and agent:
        raise click.UsageError("--graph draws the whole tree: leave out --agent")
    if graph and watch and as_json:
        raise click.UsageError("a drawing that goes on is for people: leave out --json, or --graph")
    if count is None:
        count = 0 if graph else DEFAULT_COUNT
    limit = count or None
    with open_store(store) as client:
        chosen = _choose(client, session, agent)
        if watch:
            from holdfast.cli import watching

            if graph:
                watching.follow_graph(client, chosen, limit)
            else:
                watching.follow(client, chosen.session_id, agent, limit, as_json=as_json)
            return
        if graph:
            with paged():
                _graph(client, chosen.session_id, limit, as_json=as_json)
            return
        entries = client.timeline(agent_id=agent, session_id=chosen.session_id, limit=limit or None)
    if as_json:
        _print_json(chosen, entries)
    else:
        with paged():
            _print(chosen, entries)
        if len(entries) == limit and chosen.saves > limit:
            click.echo(f"the newest {limit} of {chosen.saves} saves; `-n 0` shows all", err=True)


def _choose(client: SyncClient, session_id: str | None, agent: str | None) -> Session:
    from holdfast.cli.printable import printable
    from holdfast.errors import CheckpointNotFoundError

    found: list[Session]
    if session_id is not None:
        named = client.session(session_id)
        found = [named] if named is not None else []
        complaint = f"there is no session {printable(session_id, 60)!r} here, or all of it has expired"
    else:
        found = client.sessions(agent_id=agent, limit=1)
        complaint = (
            f"there is no session of agent {printable(agent, 60)!r} here" if agent else "there is no session here"
        )
    if not found:
        raise CheckpointNotFoundError(
            f"{complaint}. `holdfast sessions` lists what is there, `holdfast verify` checks it"
        )
    return found[0]


def _graph(client: SyncClient, session_id: str, limit: int | None, *, as_json: bool) -> None:
    from holdfast.cli import graph

    tree = client.tree(session_id)
    if not as_json:
        sys.stdout.writelines(f"{line}\n" for line in graph.lines(tree, limit))
        return
    from holdfast.cli.cmd_inbox import handoff_fields
    from holdfast.cli.json_output import checkpoint_fields, print_json

    parents = tree.parents
    rows: list[dict[str, Any]] = [
        {**checkpoint_fields(entry), "nearest_parent_id": parents[entry.checkpoint_id], "lane": row.lane}
        for entry, row in zip(tree.entries[:limit], tree.lanes(), strict=False)
    ]
    handoffs = [handoff_fields(handoff) for handoff in tree.handoffs.values()]
    print_json(
        {
            "session_id": session_id,
            "tree_id": tree.tree_id,
            "heads": dict(tree.heads),
            "handoffs": handoffs,
            "checkpoints": rows,
        }
    )


def _print_json(chosen: Session, entries: list[Checkpoint]) -> None:
    from holdfast.cli.json_output import checkpoint_fields, print_json

    print_json(
        {
            "session_id": chosen.session_id,
            "tree_id": chosen.tree_id,
            "head": chosen.head.checkpoint_id,
            "checkpoints": [checkpoint_fields(entry) for entry in entries],
        }
    )


def _print(chosen: Session, entries: list[Checkpoint]) -> None:
    from holdfast.cli.printable import name
    from holdfast.cli.tables import print_table

    click.echo(f"session {name(chosen.session_id)}", err=True)
    rows = []
    for entry, below in zip(entries, [*entries[1:], None], strict=True):
        rows.append(
            (
                "" if entry.step_index is None else str(entry.step_index),
                name(entry.step_name),
                entry.short_id,
                name(entry.agent_id),
                f"{entry.created_at:%Y-%m-%d %H:%M:%S}",
                note(entry, below, chosen.head.checkpoint_id),
            )
        )
    print_table(
        ("step", "name", "checkpoint", "agent", "created (UTC)", ""), rows, right=("step",), shrinks=("name", "agent")
    )


def note(entry: Checkpoint, below: Checkpoint | None, head: str) -> str:
    from holdfast.cli.printable import name
    from holdfast.model.ids import short

    notes = []
    if entry.checkpoint_id == head:
        notes.append("head")
    if entry.handoff_target:
        notes.append(f"for {name(entry.handoff_target)}")
    if entry.expires_at:
        notes.append(f"until {entry.expires_at:%Y-%m-%d %H:%M:%S}")
    if below is not None and entry.parent_id is not None and entry.parent_id != below.checkpoint_id:
        notes.append(f"after {short(entry.parent_id)}")
    return ", ".join(notes)
