"""`holdfast timeline`: the checkpoints of a session, newest first."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.commands.handoff import handoff_fields
from holdfast.cli.options import common_options
from holdfast.cli.output.graph import draw_tree
from holdfast.cli.output.json import checkpoint_fields, print_json
from holdfast.cli.output.langgraph import list_nodes
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.pager import paged
from holdfast.cli.terminal.sanitize import escape, format_identifier, format_name, format_number, format_utc
from holdfast.cli.terminal.table import GAP, print_table
from holdfast.errors import CheckpointNotFoundError, CorruptError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.ids import short
from holdfast.model.listing import DamagedCheckpoint, Session, Tree

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

LOOKS_EVERY = 0.25  # seconds
FROM_THE_TOP = "\x1b[H\x1b[2J"  # clears the terminal and moves the cursor to the top
ROOM_FOR_WORDS = 2  # lines


def follow(client: SyncClient, session_id: str, agent: str | None, limit: int | None, *, as_json: bool) -> None:
    """Print a line for each checkpoint of the session, oldest first, then for each new one."""
    cursor = client.cursor()  # read before the checkpoints: no save is missed
    there = client.timeline(agent_id=agent, session_id=session_id, limit=limit)[::-1]
    before: Checkpoint | None = None
    for entry in there:
        _print_entry(entry, before, as_json=as_json)
        before = entry
    known = {entry.checkpoint_id for entry in there}
    if not as_json:
        click.echo(f"watching {format_identifier(session_id)}; Ctrl-C ends it", err=True)
    for event in client.events(session_id=session_id, agent_id=agent, after=cursor, poll_seconds=LOOKS_EVERY):
        if event.checkpoint.checkpoint_id not in known:
            _print_entry(event.checkpoint, before, as_json=as_json)
            before = event.checkpoint


def _print_entry(entry: Checkpoint, before: Checkpoint | None, *, as_json: bool) -> None:
    if as_json:
        line = json.dumps(checkpoint_fields(entry), allow_nan=False)
    else:
        step = format_number(entry.step_index)
        cells = (
            f"{step:>4}",
            f"{format_name(entry.step_name):<20}",
            entry.short_id,
            f"{format_identifier(entry.agent_id):<12}",
            format_utc(entry.created_at),
            format_note(entry, before.checkpoint_id if before else None, head=""),
        )
        line = GAP.join(cells).rstrip()
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # a live reader must not wait for a full buffer


def follow_graph(client: SyncClient, chosen: Session, limit: int | None) -> None:
    """Draw the tree of the session, again after every save to it."""
    cursor = client.cursor()
    on_terminal = sys.stdout.isatty()

    def draw() -> None:
        most = limit
        if on_terminal:
            room = max(shutil.get_terminal_size().lines - ROOM_FOR_WORDS, 1)
            most = room if limit is None else min(limit, room)
        lines = draw_tree(client.tree(chosen.session_id), most)
        sys.stdout.write("".join((FROM_THE_TOP if on_terminal else "", *(f"{line}\n" for line in lines))))
        if not on_terminal:
            sys.stdout.write("\n")
        sys.stdout.flush()

    draw()
    click.echo(f"watching the tree of {format_identifier(chosen.session_id)}; Ctrl-C ends it", err=True)
    for event in client.events(after=cursor, poll_seconds=LOOKS_EVERY):
        if event.checkpoint.tree_id == chosen.tree_id:
            draw()


DEFAULT_COUNT = 20
EXIT_CORRUPT = 5


@click.command(short_help="List the checkpoints of a session, newest first.")
@click.argument("session", required=False)
@click.option("--agent", metavar="A", help="List only checkpoints that this agent saved or was handed.")
@click.option(
    "-n",
    "--limit",
    "count",
    metavar="N",
    type=click.IntRange(min=0),
    help="List the newest N; 0 for all.  [default: 20, graph: all]",
)
@click.option("--graph", is_flag=True, help="Draw the whole tree with forks; heads are marked.")
@click.option("--watch", is_flag=True, help="List oldest first, and follow new ones until Ctrl-C.")
@common_options
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
    """List the checkpoints of SESSION, newest first; without SESSION, of the one saved to last.

    A row marked "after ID" follows another checkpoint than the one below it: the session was rolled back, or
    continued from an older checkpoint. With --watch and --json, each line is a JSON object. Damaged checkpoints are
    marked; exits with 5.
    """
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
            chosen = None  # its head is damaged
        if watch:
            assert chosen is not None

            if graph:
                follow_graph(client, chosen, limit)
            else:
                follow(client, chosen.session_id, agent, limit, as_json=as_json)
            return
        session_id = chosen.session_id if chosen is not None else str(session)
        if graph:
            tree, damaged = _tree(client, session_id)
        else:
            listed = _listed(client, session_id, chosen, agent, limit)
            damaged = listed.damaged
            nodes = {} if as_json else _nodes(client, listed)
    if as_json:
        print_json(_graph_fields(session_id, tree, damaged, limit) if graph else _fields(listed))
    else:
        with paged():
            if graph:
                sys.stdout.writelines(f"{line}\n" for line in draw_tree(tree, limit))
            else:
                _print(listed, nodes)
        if not graph and len(listed.entries) == limit and listed.saves > limit:
            click.echo(f"the newest {limit} of {listed.saves} saves; `-n 0` shows all", err=True)
    if damaged:
        _print_damaged(damaged)
        ctx.exit(EXIT_CORRUPT)


def _choose(client: SyncClient, session_id: str | None, agent: str | None) -> Session:
    found: list[Session]
    if session_id is not None:
        named = client.session(session_id)
        found = [named] if named is not None else []
        complaint = f"there is no session {escape(session_id, 200)!r} here, or all of it has expired"
    else:
        found = client.sessions(agent_id=agent, limit=1)
        complaint = f"there is no session of agent {escape(agent, 60)!r} here" if agent else "there is no session here"
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
    damaged: list[DamagedCheckpoint]


def _listed(
    client: SyncClient, session_id: str, chosen: Session | None, agent: str | None, limit: int | None
) -> _Listing:
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


def _tree(client: SyncClient, session_id: str) -> tuple[Tree, list[DamagedCheckpoint]]:
    try:
        return client.tree(session_id), []
    except CorruptError:
        return _intact(client, session_id)


def _intact(client: SyncClient, session_id: str) -> tuple[Tree, list[DamagedCheckpoint]]:
    """Return the readable part of a tree, and the damaged checkpoints.

    The library returns no list with holes: a program would continue from that.
    """
    from holdfast.backends.bridge.step import run_inline
    from holdfast.operations import timeline as listing

    damaged: list[DamagedCheckpoint] = []
    return run_inline(listing.tree(client._ctx, session_id, damaged)), damaged


def _print_damaged(damaged: list[DamagedCheckpoint]) -> None:
    for one in damaged:
        what = f"checkpoint {one.checkpoint_id}" if one.checkpoint_id else "a checkpoint"
        if one.sequence:
            what += f", number {one.sequence} of session {format_identifier(one.session_id)}"
        else:
            what = f"session {format_identifier(one.session_id)}"
        click.echo(f"holdfast: {what}: {escape(one.message)}", err=True)
    click.echo(
        "holdfast: the others are intact as far as they are listed, and can be restored by their ids. "
        "Keep a copy of the store; "
        "`holdfast verify` reads everything",
        err=True,
    )


def _graph_fields(session_id: str, tree: Tree, damaged: list[DamagedCheckpoint], limit: int | None) -> dict[str, Any]:
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
    return {
        "session_id": listed.session_id,
        "tree_id": listed.tree_id,
        "head": listed.head,
        "checkpoints": [checkpoint_fields(entry) for entry in listed.entries],
        "damaged": [_damaged_fields(one) for one in listed.damaged],
    }


def _damaged_fields(one: DamagedCheckpoint) -> dict[str, Any]:
    return {
        "checkpoint_id": one.checkpoint_id,
        "session_id": one.session_id,
        "sequence": one.sequence,
        "message": one.message,
    }


def _nodes(client: SyncClient, listed: _Listing) -> dict[str, str]:
    """Return LangGraph's nodes that ran in the step before each checkpoint."""
    if not any(entry.framework == "langgraph" for entry in listed.entries):
        return {}
    return {entry.checkpoint_id: list_nodes(client, entry) for entry in listed.entries}


def _print(listed: _Listing, nodes: dict[str, str]) -> None:
    click.echo(f"session {format_identifier(listed.session_id)}", err=True)
    rows: list[tuple[str, ...]] = []
    shown: list[Checkpoint | DamagedCheckpoint] = [*listed.entries, *listed.damaged]
    if not shown:
        click.echo("it has no checkpoint of that agent", err=True)
        return
    shown.sort(key=lambda one: one.sequence, reverse=True)
    for one, below in zip(shown, [*shown[1:], None], strict=True):
        id_below = below.checkpoint_id if below is not None else None
        if not isinstance(one, DamagedCheckpoint):
            cells: tuple[str, ...] = (
                format_number(one.step_index),
                format_name(one.step_name),
                one.short_id,
                format_identifier(one.agent_id),
                format_utc(one.created_at),
                format_note(one, id_below, listed.head),
            )
        else:
            state = "damaged" if one.checkpoint_id else "missing"
            marks = [f"{state}, number {one.sequence}"] if one.sequence else []
            if one.checkpoint_id and one.checkpoint_id == listed.head:
                marks.append("head")
            cells = ("", "", short(one.checkpoint_id or ""), "", "", ", ".join(marks))
        if nodes:
            cells = (*cells[:2], nodes.get(one.checkpoint_id or "", ""), *cells[2:])
        rows.append(cells)
    columns = ("step", "name", *(("nodes",) if nodes else ()), "checkpoint", "agent", "created (UTC)", "")
    print_table(columns, rows, right=("step",), shrinks=("name", "nodes"), whole=("agent", ""))


def format_note(entry: Checkpoint, id_below: str | None, head: str | None) -> str:
    notes = []
    if entry.checkpoint_id == head:
        notes.append("head")
    if entry.handoff_target:
        notes.append(f"for {format_identifier(entry.handoff_target)}")
    if entry.expires_at:
        notes.append(f"until {format_utc(entry.expires_at)}")
    if id_below is not None and entry.parent_id is not None and entry.parent_id != id_below:
        notes.append(f"after {short(entry.parent_id)}")
    return ", ".join(notes)
