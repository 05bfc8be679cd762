"""`holdfast timeline`: what happened in a session, newest first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.listing import Damaged, Session, Tree
    from holdfast.sync_client import SyncClient

DEFAULT_COUNT = 20
EXIT_CORRUPT = 5


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
@click.pass_context
def timeline(
    ctx: click.Context,
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
    went on from an older checkpoint. With --watch and --json, each line is a JSON object. What is damaged is marked, and
    exits with 5.
    """
    from holdfast.cli.pager import paged
    from holdfast.cli.store_location import open_store
    from holdfast.errors import CorruptError

    if graph and agent:
        raise click.UsageError("--graph draws the whole tree: leave out --agent")
    if graph and watch and as_json:
        raise click.UsageError("a drawing that goes on is for people: leave out --json, or --graph")
    if count is None:
        count = 0 if graph else DEFAULT_COUNT
    limit = count or None
    with open_store(store) as client:
        try:
            chosen = _choose(client, session, agent)
        except CorruptError:
            if session is None or watch:
                raise
            chosen = None  # what it stands at is damaged
        if watch:
            assert chosen is not None
            from holdfast.cli import watching

            if graph:
                watching.follow_graph(client, chosen, limit)
            else:
                watching.follow(client, chosen.session_id, agent, limit, as_json=as_json)
            return
        session_id = chosen.session_id if chosen is not None else str(session)
        if graph:
            tree, damaged = _tree(client, session_id)
        else:
            listed = _listed(client, session_id, chosen, agent, limit)
            damaged = listed.damaged
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(_graph_fields(session_id, tree, damaged, limit) if graph else _fields(listed))
    else:
        with paged():
            if graph:
                _print_graph(tree, limit)
            else:
                _print(listed)
        if not graph and len(listed.entries) == limit and listed.saves > limit:
            click.echo(f"the newest {limit} of {listed.saves} saves; `-n 0` shows all", err=True)
    if damaged:
        _tell(damaged)
        ctx.exit(EXIT_CORRUPT)


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


class _Listing(NamedTuple):
    session_id: str
    tree_id: str
    head: str | None
    saves: int
    entries: list[Checkpoint]
    damaged: list[Damaged]


def _listed(
    client: SyncClient, session_id: str, chosen: Session | None, agent: str | None, limit: int | None
) -> _Listing:
    from holdfast.errors import CorruptError

    error: CorruptError | None = None
    if chosen is not None:
        try:
            there = client.timeline(agent_id=agent, session_id=session_id, limit=limit)
            return _Listing(session_id, chosen.tree_id, chosen.head.checkpoint_id, chosen.saves, there, [])
        except CorruptError as damage:
            error = damage
    tree, damaged = _intact(client, session_id)
    if error is not None and not damaged:
        raise error
    mine = [one for one in damaged if one.session_id == session_id]
    entries = sorted(
        (
            entry
            for entry in tree.entries
            if entry.session_id == session_id and agent in (None, entry.agent_id, entry.handoff_target)
        ),
        key=lambda entry: entry.sequence,
        reverse=True,
    )
    saves = max([*(entry.sequence for entry in entries), *(one.sequence for one in mine)], default=0)
    return _Listing(session_id, tree.tree_id, tree.heads.get(session_id), saves, entries[:limit], mine)


def _tree(client: SyncClient, session_id: str) -> tuple[Tree, list[Damaged]]:
    from holdfast.errors import CorruptError

    try:
        return client.tree(session_id), []
    except CorruptError:
        return _intact(client, session_id)


def _intact(client: SyncClient, session_id: str) -> tuple[Tree, list[Damaged]]:
    """What can be read of a tree, and what can't. The library gives no list with holes in it: a program would go on from that."""
    from holdfast.backends.stepping import run_inline
    from holdfast.operations import timeline as listing

    damaged: list[Damaged] = []
    return run_inline(listing.tree(client._services, session_id, damaged)), damaged


def _tell(damaged: list[Damaged]) -> None:
    from holdfast.cli.printable import name, printable

    for one in damaged:
        what = f"checkpoint {one.checkpoint_id}" if one.checkpoint_id else "a checkpoint"
        if one.sequence:
            what += f", number {one.sequence} of session {name(one.session_id)}"
        else:
            what = f"session {name(one.session_id)}"
        click.echo(f"holdfast: {what}: {printable(one.message)}", err=True)
    click.echo(
        "holdfast: the others are intact as far as they are listed, and can be restored by their ids. Keep a copy of the store; "
        "`holdfast verify` reads everything",
        err=True,
    )


def _print_graph(tree: Tree, limit: int | None) -> None:
    from holdfast.cli import graph

    sys.stdout.writelines(f"{line}\n" for line in graph.lines(tree, limit))


def _graph_fields(session_id: str, tree: Tree, damaged: list[Damaged], limit: int | None) -> dict[str, Any]:
    from holdfast.cli.cmd_inbox import handoff_fields
    from holdfast.cli.json_output import checkpoint_fields

    parents = tree.parents
    rows: list[dict[str, Any]] = [
        {**checkpoint_fields(entry), "nearest_parent_id": parents[entry.checkpoint_id], "lane": row.lane}
        for entry, row in zip(tree.entries[:limit], tree.lanes(), strict=False)
    ]
    handoffs = [handoff_fields(handoff) for handoff in tree.handoffs.values()]
    return {
        "session_id": session_id,
        "tree_id": tree.tree_id,
        "heads": dict(tree.heads),
        "handoffs": handoffs,
        "checkpoints": rows,
        "damaged": [_damaged_fields(one) for one in damaged],
    }


def _fields(listed: _Listing) -> dict[str, Any]:
    from holdfast.cli.json_output import checkpoint_fields

    return {
        "session_id": listed.session_id,
        "tree_id": listed.tree_id,
        "head": listed.head,
        "checkpoints": [checkpoint_fields(entry) for entry in listed.entries],
        "damaged": [_damaged_fields(one) for one in listed.damaged],
    }


def _damaged_fields(one: Damaged) -> dict[str, Any]:
    return {
        "checkpoint_id": one.checkpoint_id,
        "session_id": one.session_id,
        "sequence": one.sequence,
        "message": one.message,
    }


def _print(listed: _Listing) -> None:
    from holdfast.cli.printable import name
    from holdfast.cli.tables import print_table
    from holdfast.model.ids import short
    from holdfast.model.listing import Damaged

    click.echo(f"session {name(listed.session_id)}", err=True)
    rows = []
    shown: list[Checkpoint | Damaged] = [*listed.entries, *listed.damaged]
    shown.sort(key=lambda one: one.sequence, reverse=True)
    for one, below in zip(shown, [*shown[1:], None], strict=True):
        id_below = below.checkpoint_id if below is not None else None
        if not isinstance(one, Damaged):
            cells = (
                "" if one.step_index is None else str(one.step_index),
                name(one.step_name),
                one.short_id,
                name(one.agent_id),
                f"{one.created_at:%Y-%m-%d %H:%M:%S}",
                note(one, id_below, listed.head),
            )
        else:
            state = "damaged" if one.checkpoint_id else "missing"
            marks = [f"{state}, number {one.sequence}"] if one.sequence else []
            if one.checkpoint_id and one.checkpoint_id == listed.head:
                marks.append("head")
            cells = ("", "", short(one.checkpoint_id or ""), "", "", ", ".join(marks))
        rows.append(cells)
    print_table(
        ("step", "name", "checkpoint", "agent", "created (UTC)", ""), rows, right=("step",), shrinks=("name", "agent")
    )


def note(entry: Checkpoint, id_below: str | None, head: str | None) -> str:
    from holdfast.cli.printable import name
    from holdfast.model.ids import short

    notes = []
    if entry.checkpoint_id == head:
        notes.append("head")
    if entry.handoff_target:
        notes.append(f"for {name(entry.handoff_target)}")
    if entry.expires_at:
        notes.append(f"until {entry.expires_at:%Y-%m-%d %H:%M:%S}")
    if id_below is not None and entry.parent_id is not None and entry.parent_id != id_below:
        notes.append(f"after {short(entry.parent_id)}")
    return ", ".join(notes)
